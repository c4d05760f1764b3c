"""Write the golden files anew."""

import numpy as np

from tests.golden import cases

models = cases.fitted()
np.savez_compressed(cases.NUMBERS, **cases.numbers(models))
np.savez_compressed(cases.MESSAGES, **cases.messages())
models["centralised"].save(cases.MODEL)
models["centralised"].save(cases.PUBLIC_MODEL, public=True)
models["federated"].save(cases.FEDERATED_MODEL)
