"""Which parameter is called what: by the trained model that holds it, else by its optimizer."""

import weakref


class Names(object):
    """Names of parameters by identity, made anew when a model or an optimizer comes to light."""

    def __init__(self):
        self.count = None
        self.known = {}

    def of(self, recorder, optimizer):
        """(name, parameter) for every parameter of an optimizer.

        Parameters that no model is known to hold (flat or master copies) are named by optimizer,
        group and place, unless a model's parameter points to them as its `main_param`.
        """
        if self.count != len(recorder.models):
            self.count = len(recorder.models)
            self.known = dict(model_names(recorder.models))
        title = recorder.names.get(id(optimizer)) or type(optimizer).__name__
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                reference, name = self.known.get(id(parameter), (None, None))
                if reference is None or reference() is not parameter:
                    name = "%s.%d.%d" % (title, g, i)
                yield name, parameter


def model_names(roots):
    """(id, (weak reference, name)) of every parameter of the models, masters included."""
    for root in reversed(roots):  # of a parameter that two models hold the first one's name stays
        for name, parameter in root.parameters():
            for tensor in (getattr(parameter, "main_param", None), parameter):
                if tensor is not None:
                    yield id(tensor), (weakref.ref(tensor), root.title + name)


def new_title(name, roots):
    """What goes in front of the parameter names of a model after the first."""
    taken = {root.title for root in roots}
    title, count = name + ".", 1
    while title in taken:
        count += 1
        title = "%s#%d." % (name, count)
    return title
