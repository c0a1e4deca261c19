"""Runs a folder that `python -m loopgrad objects` wrote for SPIR-V or an AMD GPU, by nothing but its files.

A device that takes such code lends memory and dispatch; nothing else of the library is used. Programs whose
steps need a host (loops over whole arrays, branches) are not for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from loopgrad.runtime.devices import get_device
from loopgrad.runtime.gpu.driver import put


class Harness:
    """`device`: its name, such as vulkan:0."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder = folder
        self.about = json.loads((folder / "program.json").read_text())
        self.kernels = [json.loads((folder / name).read_text()) for name in self.about["kernel_files"]]
        self.driver = get_device(device).driver
        self.launches = 0
        self._images: dict[str, Any] = {}

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        constants = (self.folder / "constants.bin").read_bytes()
        self.slots: list[Any] = []
        given = dict(zip(self.about["inputs"], inputs, strict=True))
        for number, slot in enumerate(self.about["slots"]):
            dtype = slot["type"]["dtype"]
            array = np.zeros(slot["type"]["shape"], dtype)
            if number in given:
                array = given[number]
            elif slot["constant"] is not None:
                array = np.frombuffer(constants, dtype, array.size, slot["constant"])
            self.slots.append(put(self.driver, np.ascontiguousarray(array)))
        for step in self.about["steps"]:
            getattr(self, step["class"])(step)
        return [self.array(slot) for slot in self.about["outputs"]]

    def data(self, kind: str) -> list[np.ndarray]:
        """The `inputs` or `outputs` of the run that was recorded."""
        found = []
        for slot, name in zip(self.about[kind], self.about["data"][kind], strict=True):
            type = self.about["slots"][slot]["type"]
            found.append(np.frombuffer((self.folder / name).read_bytes(), type["dtype"]).reshape(type["shape"]))
        return found

    def array(self, slot: int) -> np.ndarray:
        type = self.about["slots"][slot]["type"]
        size = int(np.prod(type["shape"])) * np.dtype(type["dtype"]).itemsize
        return self.driver.fetch(self.slots[slot], size).view(type["dtype"]).reshape(type["shape"])

    # steps

    def LaunchStep(self, step: dict[str, Any]) -> None:
        record = self.about["kernels"][step["kernel"]]
        kernel = self.kernels[record["module"]]
        rows = [0] * len(kernel["stacks"])
        while True:
            params = [self.slots[slot] for slot in step["slots"]]
            for position, start in step["initials"]:
                if start["included"]:
                    continue
                source = [] if start["source"] is None else [self.slots[start["source"]]]
                self.supported(start["by"], [*source, params[position]])
            scratch = [self.driver.take(size) for size in record["scratch"]]
            arrays = {"param": params, "scratch": scratch}
            for dispatch in record["before"]:
                self.support(dispatch, [arrays[kind][i] for kind, i in dispatch["arrays"]])
            needed = self.dispatch(kernel, kernel["launch"]["example"], params, scratch, rows)
            if needed:
                rows = [max(pair) for pair in zip(rows, needed, strict=True)]
                continue
            for dispatch in record["after"]:
                self.support(dispatch, [arrays[kind][i] for kind, i in dispatch["arrays"]])
            return

    def CopyStep(self, step: dict[str, Any]) -> None:
        self.supported(step["by"], [self.slots[step["source"]], self.slots[step["target"]]])

    def MatmulStep(self, step: dict[str, Any]) -> None:
        assert self.about["support"][step["by"]]["lanes"] == step["batch"] * step["m"] * step["n"]
        more = [] if step["epilogue"] is None else [s for s in step["epilogue"]["slots"] if s != step["out"]]
        self.supported(step["by"], [self.slots[slot] for slot in (step["left"], step["right"], step["out"], *more)])

    def supported(self, number: int, arrays: list[Any]) -> None:
        self.support(self.about["support"][number], arrays)

    def support(self, by: dict[str, Any], arrays: list[Any]) -> None:
        kernel, lanes, tiles = self.kernels[by["module"]], by["lanes"], by["tiles"]
        assert kernel["support"]
        assert kernel["launch"]["items"] == ("tiles" if tiles else "lanes")
        units = 1 if tiles else kernel["launch"]["group"][0]
        groups = min(-(-(tiles or lanes) // units), 3)
        end = -(-(tiles or lanes) // (groups * units))
        words = {"across": 1, "along": groups * units, "first": 0, "end": end, "lanes": tiles or lanes}
        grid = {"groups": [groups, 1, 1], "invocations of the launch": 0, "words": words}
        self.dispatch(kernel, grid, arrays, [], [])

    def dispatch(
        self, kernel: dict[str, Any], grid: dict[str, Any], params: list[Any], scratch: list[Any], rows: list[int]
    ) -> list[int]:
        """One launch; the rows that stacks needed, where one of them had fewer."""
        driver, invocations = self.driver, grid["invocations of the launch"]
        control = put(driver, np.zeros(kernel["control"]["bytes"], np.uint8))
        void = put(driver, np.zeros(1, np.uint32))
        stacks = [
            driver.take(max(r, 1) * invocations * s["itemsize"]) for s, r in zip(kernel["stacks"], rows, strict=True)
        ]
        values = {
            "address of param": lambda w: params[w["param"]].address,
            "address of scratch": lambda w: scratch[w["scratch"]].address,
            "address of stack": lambda w: stacks[w["stack"]].address,
            "rows of stack": lambda w: rows[w["stack"]],
        }
        fixed = {"address of control block": control.address, "address of void word": void.address, "zero": 0,
                 "invocations of the launch": invocations}  # fmt: skip
        content = [fixed[w["kind"]] if w["kind"] in fixed else values[w["kind"]](w) for w in kernel["table"]]
        table = put(driver, np.array(content, np.uint64))
        words = {"table": table.address, **grid["words"]}
        if kernel["code"] not in self._images:
            self._images[kernel["code"]] = driver.image((self.folder / kernel["code"]).read_bytes())
        image, group = self._images[kernel["code"]], kernel["launch"]["group"][0]
        pipeline = image.pipeline(kernel["kernel"], kernel["entry"], group)
        commands = driver.commands()
        commands.begin()
        commands.dispatch(pipeline, grid["groups"][0], tuple(words[a["name"]] for a in kernel["arguments"]))
        commands.barrier()
        commands.end(False)
        commands.run([], None)
        self.launches += 1
        after = driver.fetch(control, kernel["control"]["bytes"])
        needed = [int(after[at : at + 4].view(np.uint32)[0]) for at in (s["needed_offset"] for s in kernel["stacks"])]
        assert any(needed) or not after.any()
        return needed if any(needed) else []
