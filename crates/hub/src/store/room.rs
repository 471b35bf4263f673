//! Whether a store has room for mail, and its state for reports.

use core::fmt;

/// Why a store has no room for mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FullReason {
    /// The disk has no room for another segment.
    Disk,
    /// [`StoreConfig::live_bytes_max`](super::StoreConfig::live_bytes_max) or
    /// [`StoreConfig::mails_max`](super::StoreConfig::mails_max) is reached.
    Limit,
}

impl fmt::Display for FullReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "the disk has no room for another segment",
            Self::Limit => "the limit of all stored mail is reached",
        })
    }
}

/// State of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// Why there is no room for mail; `None` if there is. Once full, a store has room again when a
    /// segment is ready and an eighth of a percent below the limits is free.
    pub full: Option<FullReason>,
    /// Size of all stored mail in the log, bytes.
    pub live_bytes: u64,
    /// Mails stored.
    pub mails: u64,
    /// Mails that failed their checksum since the store was opened: the disk has lost them.
    pub corrupt: u64,
}

/// Returns the fill level at which a full store has room again: so that each acknowledged mail does
/// not announce room to every sender.
pub(super) const fn resume_level(max: u64) -> u64 {
    max.saturating_sub(max.div_ceil(800))
}
