//! Rollouts: each step by itself, and whole courses against a model of the StatefulSet controller, with an operator that dies anywhere.

mod course;
mod model;
mod pace;
mod steps;
