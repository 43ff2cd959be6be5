"""Thirty lines through the product and through the original modules, heard by a judge: whether what makes the
engine fast can be heard. Run by `make bench-quality`; never imported by the product.

    lines      what is said
    render     both engines, to files
    __main__   the judge's verdicts, the table, the last row
"""
