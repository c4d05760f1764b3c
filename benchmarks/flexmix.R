# One start of flexmix on train.csv and its errors on test.csv, both in the directory given as first argument.
# Columns: agent, entity, the features x0, x1, ..., target. All events of an agent-entity pair share their class.
# Prints: seconds of the flexmix() call, its iterations, held-out MSE by a pair's best class and by all classes,
# and how many starts failed before.
suppressPackageStartupMessages(library(flexmix))
arguments <- commandArgs(trailingOnly = TRUE)
n_classes <- as.integer(arguments[2])
set.seed(as.integer(arguments[3]))
max_failed <- 5

read_events <- function(name) {
  events <- read.csv(file.path(arguments[1], name))
  events$pair <- paste(events$agent, events$entity)
  events
}
train <- read_events("train.csv")
test <- read_events("test.csv")
features <- setdiff(names(train), c("agent", "entity", "target", "pair"))
# spelled out, because "." would take the ids for features
formula <- as.formula(paste("target ~", paste(features, collapse = " + "), "| pair"))

# a start may end in an error ("Log-likelihood: NA"); then the next one counts, and only its time
failed <- 0
repeat {
  seconds <- system.time(
    fit <- try(flexmix(formula, data = train, k = n_classes, control = list(minprior = 0)), silent = TRUE)
  )[["elapsed"]]
  if (!inherits(fit, "try-error")) break
  failed <- failed + 1
  if (failed == max_failed) stop(fit)
}

coefficients <- parameters(fit)
coefficients <- coefficients[rownames(coefficients) != "sigma", , drop = FALSE]
by_class <- cbind(1, as.matrix(test[, features])) %*% coefficients
# the posterior of a pair is that of any of its training events
belief <- posterior(fit)[match(test$pair, train$pair), , drop = FALSE]
best <- by_class[cbind(seq_len(nrow(test)), max.col(belief, ties.method = "first"))]
mixed <- rowSums(by_class * belief)
cat(seconds, fit@iter, mean((test$target - best)^2), mean((test$target - mixed)^2), failed, "\n")
