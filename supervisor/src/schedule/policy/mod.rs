//! The policies that decide by [`Decider`](super::Decider): each in a file of its own.
//!
//! | policy | file |
//! |---|---|
//! | [`Migm`], the default | `migm/` |
//! | [`Fixed`]: static layouts | `fixed.rs` |
//! | [`Waves`]: scheme A | `waves.rs` |
//! | [`Far`] | `far.rs` |
//! | [`Mfi`] | `mfi.rs` |
//! | [`Miso`] | `miso.rs` |
//!
//! `name.rs` has their names. `shop.rs` evaluates list schedules and `family.rs` makes good ones, for [`Migm`] and [`Far`]; `company.rs` improves the sharing of GPUs by
//! running jobs, for [`Migm`] and [`Miso`].

mod company;
mod family;
mod far;
mod fixed;
mod layouts;
mod mfi;
mod migm;
mod miso;
mod name;
pub mod optimum;
mod picture;
mod quick;
mod shop;
mod waves;

pub use far::Far;
pub use fixed::{Fixed, Rule};
pub use layouts::{full_layouts, static_layout};
pub use mfi::Mfi;
pub use migm::{Choice, Migm};
pub use miso::Miso;
pub use name::{PolicyName, QueueOrder, UnknownPolicy};
pub use waves::Waves;
