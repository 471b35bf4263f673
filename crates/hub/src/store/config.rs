//! Limits of a store.

use crate::log::format::PAYLOAD_BYTES_MAX;

/// Limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreConfig {
    /// What a segment takes on disk, bytes; 16 MiB, and never less than
    /// [`SEGMENT_BYTES_MIN`](Self::SEGMENT_BYTES_MIN). A quarter of it bounds the names of
    /// counts, an eighth the runs of nodes, an eighth the refusals: 16 MiB hold about 80,000
    /// names, 30,000 nodes. Larger ones are removed later and take longer to
    /// recover: the newest is written again at each start.
    pub segment_bytes: u64,
    /// Mails that one mailbox holds; 1,024. The sender of one more is refused.
    pub mailbox_mails_max: u32,
    /// What one mailbox takes in the log, bytes; 1 MiB.
    pub mailbox_bytes_max: u64,
    /// What all waiting mail takes in the log, bytes; 1 GiB. The disk holds twice that and a few
    /// segments.
    pub live_bytes_max: u64,
    /// Mails that wait, all mailboxes together; 4 million. Each takes about 150 bytes of memory.
    pub mails_max: usize,
}

impl StoreConfig {
    /// Smallest segment, bytes: an eighth of it, kept for acknowledgements, still holds the
    /// longest record.
    pub const SEGMENT_BYTES_MIN: u64 = 8 * (PAYLOAD_BYTES_MAX as u64 + 4_096);

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes.max(Self::SEGMENT_BYTES_MIN)
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            mailbox_mails_max: 1_024,
            mailbox_bytes_max: 1 << 20,
            live_bytes_max: 1 << 30,
            mails_max: 4_000_000,
        }
    }
}
