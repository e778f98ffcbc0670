//! Chart, alert rules, dashboards and Applications, read by the programs of their users: helm, Prometheus, Argo CD, kstatus.
//!
//! Needs no cluster. The first run fetches the sources of these programs. Run by `cargo verify`.

mod argocd;
mod chart_readme;
mod chart_values;
mod manifests;
mod publish;
mod rights;
mod rules;
