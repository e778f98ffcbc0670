//! Chart, alert rules, dashboards and Applications, read by the programs that their users have: helm, Prometheus, Argo CD, kstatus.
//!
//! Needs no cluster; what these programs are compiled from is fetched the first time. Run by `cargo verify`.

mod argocd;
mod chart_readme;
mod chart_values;
mod manifests;
mod publish;
mod rights;
mod rules;
