//! Counters that one thread adds to and any thread reads, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares counters and their live twin from one list.
macro_rules! counters {
    (
        $(#[$counters_doc:meta])* $counters:ident,
        $(#[$ledger_doc:meta])* $ledger:ident,
        $($(#[$doc:meta])* $name:ident,)*
    ) => {
        $(#[$counters_doc])*
        ///
        /// Read while it runs, the fields are each true of some moment, not all of the same.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// Returns what both have counted.
            #[must_use]
            pub const fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name.saturating_add(other.$name),)* }
            }
        }

        $(#[$ledger_doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $ledger {
            $(pub(crate) $name: $crate::count::Count,)*
        }

        impl $ledger {
            pub(crate) fn snapshot(&self) -> $counters {
                $counters { $($name: self.$name.get(),)* }
            }
        }

        impl $crate::count::Ledger for $ledger {
            type Counters = $counters;

            fn snapshot(&self) -> $counters {
                Self::snapshot(self)
            }

            fn count_refused_request(&self) {
                self.requests_refused.add(1);
            }
        }
    };
}
pub(crate) use counters;

/// The live counters of a driver.
pub(crate) trait Ledger: std::fmt::Debug + Send + Sync {
    /// What they are read as.
    type Counters;

    /// Reads them all.
    fn snapshot(&self) -> Self::Counters;

    /// Counts a request that found the queue full.
    fn count_refused_request(&self);
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        if more > 0 {
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
