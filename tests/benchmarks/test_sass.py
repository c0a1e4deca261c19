"""Counts of machine code: loops are found in a listing, and rare blocks left out of their shortest ways."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.sass import kind, loops, parsed, successors

ROOT = Path(__file__).parents[2]
LISTING = """
.text.k0:
.L_x_0:
        /*0000*/                   LDG.E.CONSTANT R6, desc[UR10][R12.64] ;
        /*0010*/                   BSSY B1, `(.L_x_2) ;
        /*0020*/                   FSETP.GTU.AND P0, PT, |R6|, 200000, PT ;
        /*0030*/              @!P0 BRA `(.L_x_1) ;
        /*0040*/                   IMAD.SHL.U32 R13, R30, 0x4, RZ ;
        /*0050*/                   FMUL R32, R13, R6 ;
.L_x_1:
        /*0060*/                   BSYNC B1 ;
.L_x_2:
        /*0070*/                   FFMA R27, R32, R32, R6 ;
        /*0080*/              @!P1 BRA P2, `(.L_x_0) ;
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_3);
.text.k1:
        /*0000*/                   EXIT ;
"""


def test_the_shortest_way_round_a_loop_leaves_out_what_is_jumped_over():
    first, second = parsed(LISTING)
    assert (first.name, second.name) == ("k0", "k1")
    assert list(loops(first)) == [[0, 1, 2, 3, 6, 7, 8]]
    assert list(loops(second)) == []
    kinds = [kind(first.instructions[i]) for i in range(9)]
    assert kinds == ["memory", "branch", "test", "branch", "integer", "float", "branch", "float", "branch"]


def test_where_branches_lead():
    after = successors(parsed(LISTING)[0])
    assert after[3] == [6, 4]
    assert after[8] == [0, 9]
    assert after[9] == []
    assert after[10] == [10]


def test_ptx_of_a_workload():
    command = [sys.executable, "-m", "benchmarks.sass", "newton", "--size", "2000", "--ptx"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr
    assert ".visible .entry k0(" in run.stdout
