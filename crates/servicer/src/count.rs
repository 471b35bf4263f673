//! Lock-free counters: one thread increments them, any thread reads them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares a counters struct and its atomic counterpart from one list of fields.
macro_rules! counters {
    (
        $(#[$counters_doc:meta])* $counters:ident,
        $(#[$ledger_doc:meta])* $ledger:ident,
        $($(#[$doc:meta])* $name:ident,)*
    ) => {
        $(#[$counters_doc])*
        /// A snapshot of a running driver is not atomic: each field is exact, but read at a
        /// slightly different time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// Returns the sums, field by field.
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

/// The atomic counters of a driver.
pub(crate) trait Ledger: std::fmt::Debug + Send + Sync {
    /// The type of a snapshot.
    type Counters;

    /// Reads all counters.
    fn snapshot(&self) -> Self::Counters;

    /// Counts a request that was rejected because the queue was full.
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
