'''Functions of Python rewritten so that each control construct is a call of an operator.

``rewrite(function, operators)`` gives a function that does the same, but whose conditions, loops and calls go through
``operators``: a module or object that the rewritten code reaches by the name ``_disc_``. An operator does what Python
does where its condition is a Python value; what it does elsewhere is its own affair. Before and after
(:func:`rewritten_source` shows it for any function)::

    def step(self, x, n):                def step(self, x, n):
        for i in range(n):                   _disc_stop_1 = False
            if x.sum() > 3:                  def _disc_body_1(_disc_item_1):
                return x * i                     nonlocal i
            x = x + 1                            i = _disc_item_1
        return x                                 def _disc_then_2():
                                                     nonlocal _disc_returned, _disc_stop_1
                                                     _disc_returned = x * i
                                                     _disc_stop_1 = True
                                                 def _disc_else_2():
                                                     nonlocal x
                                                     x = x + 1
                                                 def _disc_get_2(): return (_disc_returned, _disc_stop_1, x)
                                                 def _disc_put_2(state): nonlocal ...; ... = state
                                                 _disc_.if_(_disc_.call(x.sum, SITE)() > 3, _disc_then_2, _disc_else_2,
                                                     _disc_get_2, _disc_put_2, ("_disc_returned", "_disc_stop_1", "x"),
                                                     SITE, needed=("_disc_returned", "_disc_stop_1", "x"), read=("x",),
                                                     seen=lambda: {"i": i})
                                             _disc_.for_(_disc_.call(range, SITE)(n), _disc_body_1,
                                                 lambda: _disc_.not_(_disc_stop_1, SITE), get, put, names, SITE,
                                                 needed=..., read=..., seen=...)
                                             def _disc_then_3(): pass
                                             def _disc_else_3():
                                                 nonlocal _disc_returned
                                                 _disc_returned = x
                                             _disc_.if_(_disc_stop_1, _disc_then_3, _disc_else_3, ...)
                                             return _disc_returned

What operators are given
------------------------
::

    if_(test, then, orelse, get, put, names, site, *, needed, read, seen)
    while_(test, body, get, put, names, site, *, needed, read, seen)
    for_(iterable, body, go_on, get, put, names, site, *, needed, read, seen)

``test`` of ``if_`` is a value (call ``bool`` on it, or trace); that of ``while_`` is a function, and holds the test of
break flags. ``then``, ``orelse`` and ``body`` are functions, always, that work on the variables of the function around
them (``nonlocal``) and return None. ``go_on`` of ``for_`` is None or a function to be called after each step: whether
there may be another one. It is not called before the first step.

- ``get()`` gives the *state*, a tuple with a value for each of ``names``; ``put(values)`` sets it. A variable without a
  value is ``_disc_.Undefined(name)`` in it, and putting an instance of ``_disc_.Undefined`` unbinds it: code never sees
  such an object, reading an unbound variable is Python's own NameError. Operators call neither where they do what
  Python does.
- ``names`` are the variables that a side (or the body, or the loop's test) sets, and that somebody reads: afterwards,
  or in a side before that side has set it. Paths such as ``"self.h"`` are attributes that are set; nothing is known
  about who reads them. Variables that are set inside and read nowhere else are not among the names.
- ``needed``: those of ``names`` that may be read after the construct. The others need no merging, but must be put back
  before the other side runs, or carried to the next step.
- ``read``: those of ``names`` that a side, a step or the loop's test may read before it sets them. A variable of a loop
  that is not among these needs no value before the first step: its last value is what counts, if there is a step.
- ``seen``: function without arguments that gives the variables which are only read inside, as a dict without the
  unbound ones: what may be changed in place there (lists, tensors, objects). Globals are among them, except builtins.
- Names that start with ``_disc_`` are made by the rewriting. ``_disc_returned`` is the value to be returned, unbound
  until there is one. ``_disc_stop_N``, ``_disc_left_N`` are flags: Python bools at first, never unbound.
  Where ``_disc_stop_N`` or ``_disc_left_N`` is false nothing reads ``_disc_returned`` unless it has been set since: a
  side that leaves it unbound may be given any value of the other side's kind. Nothing else may be assumed so.
- What a side changes otherwise (``x[i] = y``, attributes of objects that the side itself looks up, what functions that
  it calls change) shows in the objects alone that ``get`` and ``seen`` reach. Operators have to look.

A ``raise`` in a side is left there: ``then()`` raises.

::

    if_exp(test, then, orelse, site)      and_(first, *thunks, site=site)      or_(first, *thunks, site=site)
    not_(value, site)     is_(a, b)       is_not(a, b)                         assert_(test, message, site)
    call(f, site)         Undefined(name)                                      site(file, line, text)

Thunks are functions without arguments (``message`` of ``assert_`` is one, or None) that set no variables: where an
operand of ``and``, ``or`` or ``x if c else y`` has a ``:=`` in it, an ``if_`` stands for the whole. What thunks read is
in their closures. ``a < b < c`` is ``and_(a < (t := b), lambda: t < c)``. ``call(f, site)`` gives what is called in the
place of ``f`` with the arguments as they are in the source; anything that it does not know it gives back, also what
cannot be called. ``Undefined`` is a class. ``site`` is called while rewriting, once for each construct, so any value
that it gives is what operators get.

How statements become operators
-------------------------------
- ``return``, ``break`` and ``continue``: what follows an ``if`` that jumps on one side moves into the other side. Where
  both sides may go on it becomes a function that both call. No flags are needed for that; they are for what leaves a
  loop, a ``with`` or a ``try``: there the rest is under ``if_(flag, ...)``.
- ``for``/``while`` with ``else``: the else part is under ``if_(stop flag)`` if there is a ``break``, or simply follows.
- ``match``: a chain of ``if_``. Patterns of values (``case 3 | "a"``, ``case None``) are comparisons, so the subject
  may depend on data; other patterns are matched by Python, and guards are ``if_`` again.
- ``assert`` is ``assert_``. ``del``, ``global``, ``nonlocal``, ``with``, ``try`` and ``raise`` stay what they are, with
  their parts rewritten. ``return``, ``break`` and ``continue`` in a ``finally`` are not rewritten (NotRewritable).
- List, set and dict comprehensions become functions with loops; so do generator expressions that are all of the
  arguments of ``any``, ``all``, ``list``, ``tuple``, ``set``, ``sum``, ``min``, ``max``, ``sorted`` or ``dict``, or
  stand behind a ``*``. For all but ``any`` and ``all``, which stop where they do in Python, the elements are computed
  before the function is called. Other generator expressions stay lazy: generators whose ``for`` and ``if`` are
  Python's.
- Nested functions and lambdas are rewritten in place; nested generators, coroutines and classes stay as they are, and
  f-strings too. ``super()`` is ``super(__class__, self)``, as its caller may be a side.

The new function has the signature, defaults, globals and closure cells of the old one, its name, file and lines.
Decorators: what is rewritten is the function object that is given. The wrapper that a decorator made is rewritten
itself, and what it wraps when it is called through ``call``: nothing that a decorator does is lost. ``call`` sees
wrappers of libraries too (``torch.no_grad``'s lies in PyTorch): it should rewrite those whose ``__wrapped__`` is to be
rewritten. Only objects that are no functions and have a ``__wrapped__`` (``functools.lru_cache``) are replaced by it.
'''
