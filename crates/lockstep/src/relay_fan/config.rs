//! What a fan accepts, and whom it serves.

use core::time::Duration;

use crate::config::ClientConfig;
use crate::transfer::TransferLimits;

/// How a [`RelayFan`](crate::RelayFan) runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FanConfig {
    /// Most who may have the match from this one; 64. Each costs some 200 bytes, and a datagram a
    /// tick.
    pub children_max: u32,
    /// How long to wait for the first word of one who may watch; 30 s.
    pub ready_timeout: Duration,
    /// Largest match to take, in seats; 64. With `bundle_len_max` it bounds what a server can make
    /// the fan hold: 1,280 bundles.
    pub seats_max: u16,
    /// Longest bundle to accept, in bytes; 1,200.
    pub bundle_len_max: u16,
    /// Longest state of a snapshot to accept and to hold for children, in bytes; 6 MiB.
    pub snapshot_len_max: u32,
    /// How fast a snapshot is sent to each child that needs one; 10 Mbit/s.
    pub transfer: TransferLimits,
    /// Longest datagram to a child, in bytes; 1,100.
    pub datagram_len_max: u16,
    /// Bytes a second that a child behind gets above its share; 72,000.
    pub catch_up_rate: u32,
    /// Bytes that a child behind may get at once; 64,000.
    pub catch_up_burst: u32,
}

impl Default for FanConfig {
    fn default() -> Self {
        let client = ClientConfig::default();
        Self {
            children_max: 64,
            ready_timeout: Duration::from_secs(30),
            seats_max: client.seats_max,
            bundle_len_max: client.bundle_len_max,
            snapshot_len_max: client.snapshot_len_max,
            transfer: client.transfer,
            datagram_len_max: 1_100,
            catch_up_rate: 72_000,
            catch_up_burst: 64_000,
        }
    }
}
