"""The Taylor bound (docs/theory.md, "The Taylor bound"): second-order expansions along the recorded path, with
remainder bounds.

    RecordedPaths -> ValueExpansion -> Advantages -> AdvantageTables -+
       recorded      value_expansion   advantages    evaluation       +-> TaylorTables -> children, reward_to_go
                            +------> Displacements -> largest advantages     bound
                                     displacement     largest_advantage
"""

from ifonly.bounds.taylor.applicability import can_expand, table_elements
from ifonly.bounds.taylor.bound import TaylorChildBound

__all__ = ["TaylorChildBound", "can_expand", "table_elements"]
