# A mixed model by lme4 on train.csv and its error on test.csv, both in the directory given as first argument.
# Columns: agent, entity, the features x0, x1, ..., target. Intercept and slopes vary by agent-entity pair, correlated.
# Prints: seconds of the lmer() call, held-out MSE.
suppressPackageStartupMessages(library(lme4))
arguments <- commandArgs(trailingOnly = TRUE)

read_events <- function(name) {
  events <- read.csv(file.path(arguments[1], name))
  events$pair <- paste(events$agent, events$entity)
  events
}
train <- read_events("train.csv")
test <- read_events("test.csv")
features <- setdiff(names(train), c("agent", "entity", "target", "pair"))
slopes <- paste(features, collapse = " + ")
formula <- as.formula(paste("target ~", slopes, "+ (1 +", slopes, "| pair)"))
# with few events per pair there are more random effects than events, which lme4 refuses unless told otherwise
control <- lmerControl(calc.derivs = FALSE, check.nobs.vs.nRE = "ignore", check.conv.singular = "ignore")
seconds <- system.time(fit <- suppressWarnings(lmer(formula, data = train, control = control)))[["elapsed"]]
predicted <- predict(fit, newdata = test, allow.new.levels = TRUE)
cat(seconds, mean((test$target - predicted)^2), "\n")
