//! How often an origin's records are taken.

use udp_proto::budget::{Fill, Level};
use wire::Instant;

/// What an origin may still say; only what it signed is taken from it, so that forgeries in its
/// name do not silence it.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    node: Level,
    links: Level,
}

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Links,
}

impl Pace {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            node: Level::full(NODE, now),
            links: Level::full(LINKS, now),
        }
    }

    /// Whether one more would be taken.
    pub(super) fn allows(&self, now: Instant, kind: Kind) -> bool {
        self.clone().take(now, kind)
    }

    /// Takes the place of one record; false where there is none.
    pub(super) fn take(&mut self, now: Instant, kind: Kind) -> bool {
        match kind {
            Kind::Node => self.node.take(NODE, now, 1),
            Kind::Links => self.links.take(LINKS, now, 1),
        }
    }
}

/// Node records: a publisher spaces them by 1 s; those of 5 s may come at once.
const NODE: Fill = Fill { rate: 1, burst: 5 };
/// Link records: a publisher spaces them by 200 ms; those of 2 s may come at once.
const LINKS: Fill = Fill { rate: 5, burst: 10 };
