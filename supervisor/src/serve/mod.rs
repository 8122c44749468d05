//! The serving planner: the fewest GPUs that serve many models, each at its rate and within its latency.
//!
//! One plan's way through this room:
//!
//! 1. [`Profiles::parse`] reads how models run on slices, [`parse_demand`] what is to be served.
//! 2. [`Fleet::add`] takes the state table of each kind of GPU. What a GPU can be cut into is a set of slices:
//!    where they sit makes no difference to a service.
//! 3. [`Problem::new`] picks each service's best operating point on each size of slice. From here on a service is a
//!    required rate and a rate per size, in whole millionths of a request per second.
//! 4. A [`Method`](methods::Method) makes a [`Plan`], with a bound that no plan is below. migm's own is [`Exact`];
//!    the others are published ones, to compare with.
//! 5. [`Plan`] names GPUs, placements and services. It is what transitions and pictures start from.
//!
//! Pure: texts and state tables come in, plans go out. The problem is that of MIG-serving (arXiv 2109.11067);
//! `docs/design/serving.md` has the mathematics and the measurements.

mod branch;
mod configurations;
mod cover;
mod exact;
mod fleet;
mod input;
mod linear;
mod master;
pub mod methods;
mod plan;
mod points;
mod problem;
mod rows;

pub use configurations::configurations;
pub use exact::{Exact, lower_bound};
pub use fleet::{Fleet, FleetError, Kind, Layout, PRICE_UNIT, Size, SizeIndex, price};
pub use input::{DemandRow, On, ProfileRow, Profiles, parse_demand};
pub use linear::linear_bound;
pub use plan::{Plan, PlannedGpu, PlannedSlice};
pub use points::Usable;
pub use problem::{Point, Problem, Rate, Service};
pub use rows::InputError;
