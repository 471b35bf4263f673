//! Budgets: what all sources may spend in a time, and a share for one network.

mod answer;
mod prefix;
mod ration;

pub use answer::AnswerBudget;
pub use prefix::{PrefixShares, ShareRefusal};
pub use ration::{RationRefusal, Rationed};
