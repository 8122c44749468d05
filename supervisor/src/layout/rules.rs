//! What NVML cannot tell about a GPU, in one table by driver branch.

/// Limits on layouts that no NVML call reports.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// Pairs of compute-slice counts whose profiles the driver refuses on one GPU.
    pub forbid: Vec<(u32, u32)>,
}

/// Before this branch: these pairs of compute-slice counts are refused together.
///
/// | until | pair | where it is seen |
/// |---|---|---|
/// | R510 | 4g with 3g | driver 450 has 18 full layouts on the A100, R510 has 19 (MIG user guide; arXiv 2109.11067, 2.1) |
const REFUSED_BEFORE: &[(u32, (u32, u32))] = &[(510, (4, 3))];

impl Rules {
    /// The rules of a driver branch: 470 for driver 470.82.01.
    #[must_use]
    pub fn for_driver(branch: u32) -> Self {
        let pairs = REFUSED_BEFORE.iter().filter(|(until, _)| branch < *until);
        Self {
            forbid: pairs.map(|(_, pair)| *pair).collect(),
        }
    }

    /// The rules of a driver version as NVML prints it; those of the newest branch where it cannot be read.
    #[must_use]
    pub fn for_version(version: &str) -> Self {
        let branch = version.split('.').next().and_then(|text| text.parse().ok());
        branch.map_or_else(Self::default, Self::for_driver)
    }

    /// Whether profiles of these compute-slice counts must not stand together.
    #[must_use]
    pub fn forbids(&self, one: u32, other: u32) -> bool {
        self.forbid.contains(&(one, other)) || self.forbid.contains(&(other, one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_4g_3g_is_legal_from_r510() {
        assert!(Rules::for_version("470.82.01").forbids(3, 4));
        assert!(!Rules::for_version("510.39.01").forbids(4, 3));
        assert_eq!(Rules::for_version("unknown"), Rules::default());
    }
}
