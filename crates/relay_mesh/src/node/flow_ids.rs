//! Ids of the flows between two nodes: odd ones for flows that the dialer opens, even ones for
//! those of the accepter.

use crate::flow_key::FlowId;
use crate::link::End;

#[derive(Debug)]
pub(super) struct FlowIds {
    end: End,
    next: u64,
    /// The highest id that the remote end used.
    last_remote: u64,
}

impl FlowIds {
    /// Makes the ids of a session in which this node is `end`.
    pub(super) const fn new(end: End) -> Self {
        Self {
            end,
            next: match end {
                End::Dialler => 1,
                End::Accepter => 2,
            },
            last_remote: 0,
        }
    }

    /// Returns the id of the next flow that this node opens.
    pub(super) const fn take(&mut self) -> FlowId {
        let id = FlowId(self.next);
        self.next = self.next.saturating_add(2);
        id
    }

    /// Accepts an id of the remote end if it is higher than all before; returns whether it was.
    pub(super) fn accept_remote(&mut self, FlowId(flow): FlowId) -> bool {
        let theirs = u64::from(self.end == End::Accepter);
        if flow == 0 || flow % 2 != theirs || flow <= self.last_remote {
            return false;
        }
        self.last_remote = flow;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_accepts_the_ids_of_the_other_in_ascending_order() {
        let (mut dialler, mut accepter) = (FlowIds::new(End::Dialler), FlowIds::new(End::Accepter));
        for _ in 0..3 {
            let (odd, even) = (dialler.take(), accepter.take());
            assert!(!dialler.accept_remote(odd) && !accepter.accept_remote(even));
            assert!(dialler.accept_remote(even) && accepter.accept_remote(odd));
            assert!(!dialler.accept_remote(even), "used");
        }
        assert!(!accepter.accept_remote(FlowId(0)));
        assert!(accepter.accept_remote(FlowId(101)), "ids may be skipped");
        assert!(!accepter.accept_remote(FlowId(99)));
    }
}
