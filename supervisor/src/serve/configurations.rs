//! How many ways there are to run services on one GPU: the size of the space that the published methods search.

use super::fleet::Fleet;

/// Ways to give the slices of one GPU to `services`: per layout and size, slices are alike, so it is a choice with
/// repetition. With `most`, at most so many different services share the GPU. `None` past 2^128.
///
/// MIG-serving (arXiv 2109.11067, 5.1) counts 157.8 thousand for 12 services and 234.7 thousand for 13, without
/// the layout 4g + 3g.
#[must_use]
pub fn configurations(fleet: &Fleet, services: u32, most: Option<u32>) -> Option<u128> {
    fleet.layouts.iter().try_fold(0_u128, |sum, layout| {
        sum.checked_add(of_layout(&layout.counts, services, most)?)
    })
}

fn of_layout(counts: &[u32], services: u32, most: Option<u32>) -> Option<u128> {
    let free = |services: u32| -> Option<u128> {
        counts
            .iter()
            .filter(|&&count| count > 0)
            .try_fold(1_u128, |product, &count| {
                product.checked_mul(choose((services + count).saturating_sub(1), count)?)
            })
    };
    match most {
        Some(most) if most < services => (1..=most).try_fold(0_u128, |sum, exactly| {
            sum.checked_add(choose(services, exactly)?.checked_mul(onto(exactly, &free)?)?)
        }),
        _ => free(services),
    }
}

/// Choices in which each of so many services has a slice: all choices, less those of any fewer services.
fn onto(services: u32, free: &impl Fn(u32) -> Option<u128>) -> Option<u128> {
    let fewer = (1..services).try_fold(0_u128, |sum, fewer| {
        sum.checked_add(choose(services, fewer)?.checked_mul(onto(fewer, free)?)?)
    })?;
    free(services)?.checked_sub(fewer)
}

fn choose(of: u32, pick: u32) -> Option<u128> {
    (0..pick).try_fold(1_u128, |product, index| {
        Some(product.checked_mul(u128::from(of.checked_sub(index)?))? / u128::from(index + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Rules, Table, base, samples};

    fn a100(driver: u32) -> Fleet {
        let table = Table::build(base(&samples::a100_40gb()), Rules::for_driver(driver)).unwrap();
        let mut fleet = Fleet::default();
        fleet.add("a100-40gb", &table, 1.0, None).unwrap();
        fleet
    }

    /// Driver 450 as in the paper, which refuses 4g beside 3g; then with it.
    #[test]
    fn the_published_sizes_of_the_configuration_space() {
        let (old, new) = (a100(450), a100(570));
        for (services, most, without, with) in [
            (12, None, 157_830, 157_974),
            (13, None, 234_702, 234_871),
            (24, None, 5_990_892, 5_991_468),
            (24, Some(2), 22_116, 22_692),
        ] {
            assert_eq!(configurations(&old, services, most), Some(without), "{services}");
            assert_eq!(configurations(&new, services, most), Some(with), "{services}");
        }
        assert_eq!(configurations(&old, 24, Some(3)), Some(331_788));
    }

    #[test]
    fn no_service_more_than_there_are_and_none_without_services() {
        let fleet = a100(570);
        assert_eq!(
            configurations(&fleet, 2, Some(9)),
            configurations(&fleet, 2, None)
        );
        assert_eq!(configurations(&fleet, 1, None), Some(14));
        assert_eq!(configurations(&fleet, 0, None), Some(0));
    }
}
