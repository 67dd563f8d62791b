"""From the syntax tree of an operator to tensor IR: names, ranks, types, ranges and boxes resolved, every mistake reported.

module.load_module          names of a file and of the libraries it sees
instantiate.instantiate     one operator for given argument types: a `tensor.nodes.Program`
definition.check_module     every operator of a file, checked where it is defined
"""
