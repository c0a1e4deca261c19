"""Vulkan's interface: instance, physical devices, one logical device with a compute queue.

Everything is called through cffi (`lib`), since the package's wrapper builds its structs in Python and gets
some functions wrong. A missing package, loader or driver is a VulkanMissing with one line that says so.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from loopgrad.runtime.processes import FORKED, child_safe_lock, renewed_in_children

API_VERSION: Final = 1 << 22 | 2 << 12
QUEUE_GRAPHICS, QUEUE_COMPUTE = 1, 2
TYPE_INTEGRATED, TYPE_CPU = 1, 4
ERROR_OUT_OF_MEMORY: Final = (-1, -2)
ERROR_DEVICE_LOST: Final = -4
NAMES: Final = {-1: "out of host memory", -2: "out of device memory", -3: "initialization failed", -4: "device lost"}


class VulkanMissing(RuntimeError):
    """Vulkan can't be used here; the text says why in one line."""


class VulkanError(RuntimeError):
    """A call that the driver refused."""


class Api:
    """The package's C functions and types, and one instance."""

    def __init__(self) -> None:
        try:
            from vulkan import _vulkan  # late: 100 ms, and OSError where there is no loader
        except ImportError:
            raise VulkanMissing("the package 'vulkan' is not installed (pip install loopgrad[vulkan])") from None
        except OSError:
            raise VulkanMissing("libvulkan.so.1 (the Vulkan loader) not found") from None
        self.lib: Any = _vulkan.lib
        self.ffi: Any = _vulkan.ffi
        self.constants: Any = _vulkan
        self.instance = self._make_instance()

    def check(self, result: int, what: str) -> None:
        if result in ERROR_OUT_OF_MEMORY:
            raise MemoryError(f"{what}: the Vulkan driver is {NAMES[result]}")
        if result < 0:
            raise VulkanError(f"{what}: the Vulkan driver answered {NAMES.get(result, result)}")

    def struct(self, name: str, **fields: Any) -> Any:
        """A struct of the API; its sType follows from the name."""
        return self.ffi.new(f"{name}*", {"sType": self.constants.__dict__[structure_type(name)], **fields})

    def _make_instance(self) -> Any:
        name = self.ffi.new("char[]", b"loopgrad")
        app = self.struct("VkApplicationInfo", pApplicationName=name, pEngineName=name, apiVersion=API_VERSION)
        info = self.struct("VkInstanceCreateInfo", pApplicationInfo=app)
        out = self.ffi.new("VkInstance*")
        result = self.lib.vkCreateInstance(info, self.ffi.NULL, out)
        if result < 0:
            raise VulkanMissing("the Vulkan loader finds no driver (no ICD is installed)")
        return out[0]

    def physical_devices(self) -> list[Any]:
        count = self.ffi.new("uint32_t*")
        if self.lib.vkEnumeratePhysicalDevices(self.instance, count, self.ffi.NULL) < 0 or not count[0]:
            return []
        out = self.ffi.new("VkPhysicalDevice[]", count[0])
        self.check(self.lib.vkEnumeratePhysicalDevices(self.instance, count, out), "listing devices")
        return [out[i] for i in range(count[0])]

    def properties(self, physical: Any) -> Any:
        out = self.ffi.new("VkPhysicalDeviceProperties*")
        self.lib.vkGetPhysicalDeviceProperties(physical, out)
        return out

    def features(self, physical: Any) -> Any:
        """What the device has, as `feature_chain`."""
        chain = feature_chain(self)
        self.lib.vkGetPhysicalDeviceFeatures2(physical, chain[0])
        return chain

    def extensions(self, physical: Any) -> set[str]:
        """What the device has beside the core."""
        count, null = self.ffi.new("uint32_t*"), self.ffi.NULL
        self.check(self.lib.vkEnumerateDeviceExtensionProperties(physical, null, count, null), "listing extensions")
        out = self.ffi.new("VkExtensionProperties[]", count[0])
        self.check(self.lib.vkEnumerateDeviceExtensionProperties(physical, null, count, out), "listing extensions")
        return {self.ffi.string(out[i].extensionName).decode() for i in range(count[0])}

    def device_name(self, physical: Any) -> str:
        text: bytes = self.ffi.string(self.properties(physical).deviceName)
        return text.decode(errors="replace")


def feature_chain(api: Api) -> tuple[Any, Any, Any]:
    """Structs for the features of Vulkan 1.0 (with the others behind it), 1.1 and 1.2."""
    twelve = api.struct("VkPhysicalDeviceVulkan12Features")
    eleven = api.struct("VkPhysicalDeviceVulkan11Features", pNext=twelve)
    return api.struct("VkPhysicalDeviceFeatures2", pNext=eleven), eleven, twelve


def lacking(base: Any, twelve: Any) -> str:
    """What is needed of a device and isn't there; empty where nothing is missing."""
    needed = {
        "shaderInt64": base.features.shaderInt64,
        "bufferDeviceAddress": twelve.bufferDeviceAddress,
        "timelineSemaphore": twelve.timelineSemaphore,
    }
    return ", ".join(name for name, there in needed.items() if not there)


@cache
def structure_type(name: str) -> str:
    """VkBufferCreateInfo -> VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO."""
    text = "".join(f"_{c}" if c.isupper() else c for c in name[2:]).upper()
    for wrong, right in (("VULKAN11", "VULKAN_1_1"), ("VULKAN12", "VULKAN_1_2"), ("FEATURES2", "FEATURES_2"),
                         ("PROPERTIES2", "PROPERTIES_2"), ("K_H_R", "KHR")):  # fmt: skip
        text = text.replace(wrong, right)
    return f"VK_STRUCTURE_TYPE{text}"


_lock = child_safe_lock()
_forked = False
_api: Api | None = None


def api() -> Api:
    """The loaded API; VulkanMissing where there is none."""
    global _api
    with _lock:
        if _forked:
            raise VulkanMissing(FORKED)
        if _api is None:
            _api = Api()
        return _api


def _in_child() -> None:
    global _forked
    _forked = _forked or _api is not None


renewed_in_children(_in_child)


def usable_devices() -> list[Any]:
    """The physical devices that have what is needed; VulkanMissing where there is none."""
    loaded = api()
    reasons, found = [], []
    for physical in loaded.physical_devices():
        reason = unfit(loaded, physical)
        if reason:
            reasons.append(f"{loaded.device_name(physical)} {reason}")
        else:
            found.append(physical)
    if not found:
        raise VulkanMissing("; ".join(reasons) or "the Vulkan loader finds no device")
    return found


def unfit(loaded: Api, physical: Any) -> str:
    """Why the device can't be used; empty where it can."""
    version = loaded.properties(physical).apiVersion
    if version < API_VERSION:
        return f"has Vulkan {version >> 22}.{version >> 12 & 0x3FF}, and 1.2 is needed"
    base, _, twelve = loaded.features(physical)
    missing = lacking(base, twelve)
    return f"lacks {missing}" if missing else ""


def usable(position: int) -> Any:
    """The physical device of that number."""
    found = usable_devices()
    if position >= len(found):
        raise VulkanMissing(f"there are only {len(found)} Vulkan devices here")
    return found[position]


def device_count() -> tuple[int, str]:
    """How many devices can be used and, where none can, why in one line."""
    try:
        return len(usable_devices()), ""
    except VulkanMissing as missing:
        return 0, str(missing)
