//! Numbers of gateways that are worth having: between two of them, more gateways have no fewer partitions each.

use crate::pipeline::policy::{Alignment, Bounds};

/// The steps within the bounds, ascending, at least one. A bound that is no step is one nevertheless: the user wants it.
///
/// With several workers a gateway is full only when it has a multiple of them in partitions; other steps are left out.
pub fn steps(partitions: u32, workers: u32, alignment: Alignment, bounds: Bounds) -> Vec<u32> {
    let held = (1..=partitions).filter(|held| held % workers.max(1) == 0 || *held == partitions);
    let mut steps: Vec<u32> = match alignment {
        Alignment::Balanced => held.map(|held| partitions.div_ceil(held)).collect(),
        Alignment::Even => (1..=partitions).filter(|step| partitions.is_multiple_of(*step)).collect(),
        Alignment::None => (1..=partitions).collect(),
    };
    steps.retain(|step| (bounds.min..=bounds.max).contains(step));
    steps.extend([bounds.min, bounds.max.min(partitions.max(bounds.min))]);
    steps.sort_unstable();
    steps.dedup();
    steps
}

/// Every number within the bounds: any gateway takes any request, so that each of them is worth having.
pub fn each(bounds: Bounds) -> Vec<u32> {
    (bounds.min..=bounds.max).collect()
}

/// The smallest step that is not below a number, else the largest.
pub fn at_least(steps: &[u32], replicas: u32) -> u32 {
    steps.iter().copied().find(|step| *step >= replicas).or(steps.last().copied()).unwrap_or(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_lowers_the_most_partitions_of_a_gateway() {
        for partitions in [1_u32, 8, 24, 96, 97, 1_000] {
            let steps = steps(partitions, 1, Alignment::Balanced, Bounds { min: 1, max: partitions });
            let held: Vec<_> = steps.iter().map(|step| partitions.div_ceil(*step)).collect();
            assert!(held.windows(2).all(|two| two[1] < two[0]), "{partitions}: {held:?}");
            // The fewest gateways that have so few partitions each.
            assert!(steps.iter().zip(&held).all(|(step, held)| *step == partitions.div_ceil(*held)));
        }
    }

    #[test]
    fn steps_by_alignment_workers_and_bounds() {
        let bounds = |min, max| Bounds { min, max };
        for (partitions, workers, alignment, bounds, expected) in [
            (24, 1, Alignment::Balanced, bounds(1, 24), vec![1, 2, 3, 4, 5, 6, 8, 12, 24]),
            (24, 1, Alignment::Balanced, bounds(7, 20), vec![7, 8, 12, 20]),
            (24, 1, Alignment::Even, bounds(1, 24), vec![1, 2, 3, 4, 6, 8, 12, 24]),
            (5, 1, Alignment::None, bounds(2, 4), vec![2, 3, 4]),
            (24, 4, Alignment::Balanced, bounds(1, 6), vec![1, 2, 3, 6]),
            (1, 1, Alignment::Balanced, bounds(1, 1), vec![1]),
        ] {
            assert_eq!(steps(partitions, workers, alignment, bounds), expected);
        }
    }

    #[test]
    fn requests_have_every_step() {
        assert_eq!(each(Bounds { min: 2, max: 5 }), [2, 3, 4, 5]);
        assert_eq!(each(Bounds { min: 1, max: 1 }), [1]);
    }

    #[test]
    fn at_least_takes_the_next_step_or_the_last() {
        for (replicas, expected) in [(0, 1), (1, 1), (5, 8), (8, 8), (9, 8)] {
            assert_eq!(at_least(&[1, 2, 8], replicas), expected);
        }
    }
}
