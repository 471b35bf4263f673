//! What the receiving halves of a session's channels have in common.

use super::credit::Credit;
use super::unread::{UNRELIABLE_UNREAD_MAX, Unread};
use crate::fragment::{Reassembler, UNRELIABLE_BUDGET};

/// What the channels of a session share.
#[derive(Debug)]
pub(crate) struct Store {
    /// What is there; `None` where nothing is, and nothing has come for long.
    pub(super) stock: Option<Box<Stock>>,
    /// What the peer may still send of reliable messages.
    pub(crate) credit: Credit,
    /// Unreliable messages that were dropped while there was another stock.
    dropped: u64,
}

/// Messages on their way from packets to the application.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// Those that are not complete, or not in turn.
    pub(crate) reassembler: Reassembler,
    /// Those that wait for the application.
    pub(crate) unread: Unread,
}

impl Store {
    /// Makes an empty one, for a peer who was granted `window` bytes.
    pub(super) const fn new(window: u64) -> Self {
        Self {
            stock: None,
            credit: Credit::new(window),
            dropped: 0,
        }
    }

    /// Returns what is there, or a place for what comes.
    #[inline]
    pub(crate) fn stock(&mut self) -> &mut Stock {
        self.stock.get_or_insert_default()
    }

    /// Once all parts together keep more than one of them that grew alone, has those give back memory
    /// that hold little of what they grew to: a peer who sends in one form after the other fills
    /// each part in its turn.
    pub(super) fn tidy(&mut self) {
        let window = usize::try_from(self.credit.window()).unwrap_or(usize::MAX);
        let alone = window.saturating_add(window / 2).max(UNRELIABLE_MEMORY_MAX);
        let Stock {
            reassembler,
            unread,
        } = self.stock();
        let kept = reassembler.stores_memory();
        if kept.saturating_add(unread.memory()) > alone {
            reassembler.tidy();
            unread.tidy();
        }
    }

    /// Gives back the memory of all that is empty.
    pub(super) fn shrink(&mut self) {
        let Some(stock) = &mut self.stock else {
            return;
        };
        stock.unread.shrink();
        stock.reassembler.shrink();
        if stock.unread.is_empty() && stock.reassembler.is_empty() {
            self.dropped = self.dropped();
            self.stock = None;
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        let of_this = self
            .stock
            .as_ref()
            .map_or(0, |stock| stock.unread.dropped());
        self.dropped.saturating_add(of_this)
    }

    /// Returns the heap memory it keeps, bytes.
    pub(super) fn memory(&self) -> usize {
        self.stock.as_ref().map_or(0, |stock| {
            size_of::<Stock>()
                .saturating_add(stock.reassembler.memory())
                .saturating_add(stock.unread.memory())
        })
    }
}

/// What unreliable messages take that are put together and that wait, with what vectors that grow by half
/// keep.
const UNRELIABLE_MEMORY_MAX: usize = (UNRELIABLE_BUDGET + UNRELIABLE_UNREAD_MAX) * 8 / 5;
