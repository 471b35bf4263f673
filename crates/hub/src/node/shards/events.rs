//! Events of several links, as one stream.

use super::super::NodeEvent;
use super::Node;
use super::sums::{GroupPart, MailPart};
use crate::field::{CallId, GroupRequest, LiveSeq, SenderSeq};
use crate::record::{DownReason, LiveOutcome};

/// A run of live messages of one link with equal outcomes. The numbers of the application have gaps there,
/// so each message is reported alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LiveRun {
    index: u8,
    next: LiveSeq,
    last: LiveSeq,
    outcome: Option<LiveOutcome>,
}

impl Node {
    pub(super) fn next_event(&mut self) -> Option<NodeEvent> {
        loop {
            let due = self.presence.next();
            if let Some(event) = due.or_else(|| self.next_of_run()) {
                return Some(event);
            }
            let (index, event) = self.links.next_event()?;
            if let Some(event) = self.merge(index, event) {
                return Some(event);
            }
        }
    }

    /// Returns the outcome of the next message of the run.
    fn next_of_run(&mut self) -> Option<NodeEvent> {
        while let Some(run) = self.run {
            let more = LiveRun {
                next: run.next.next(),
                ..run
            };
            self.run = (run.next < run.last).then_some(more);
            let part = (run.index, run.next.0);
            if !self.live.has_part(part) {
                let live = LiveSeq(self.links.to_unique(run.index, run.next.0));
                return Some(NodeEvent::LiveSent {
                    first: live,
                    last: live,
                    outcome: run.outcome,
                });
            }
            if let Some((number, sum)) = self.live.end(part, |sum| sum.add(run.outcome)) {
                return Some(sum.into_event(LiveSeq(self.links.sum_number(number))));
            }
        }
        None
    }

    /// Returns what to report for an event of a link: with numbers that are unique over all links.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what has no number of a link is passed on as it is"
    )]
    fn merge(&mut self, index: u8, event: NodeEvent) -> Option<NodeEvent> {
        match event {
            NodeEvent::Joined { epoch, log } if index > 0 => Some(NodeEvent::ShardJoined {
                shard: index,
                epoch,
                log,
            }),
            NodeEvent::HubDown if index > 0 => Some(NodeEvent::ShardDown { shard: index }),
            // A later run of this node has joined: it will be so at every hub.
            NodeEvent::Refused(reason) if index > 0 && reason != DownReason::Fenced => {
                let shard = index;
                Some(NodeEvent::ShardRefused { shard, reason })
            }
            NodeEvent::Reply { call, result } => {
                let call = CallId(self.links.to_unique(index, call.0));
                Some(NodeEvent::Reply { call, result })
            }
            NodeEvent::LiveSent {
                first,
                last,
                outcome,
            } => {
                self.run = Some(LiveRun {
                    index,
                    next: first,
                    last,
                    outcome,
                });
                self.next_of_run()
            }
            NodeEvent::PresenceReset => self.presence.on_reset(index),
            NodeEvent::NodePresence(node, info) => self.presence.on_node(index, node, info),
            NodeEvent::PlayerPresence(player, holder) => {
                self.presence.on_player(index, player, holder)
            }
            NodeEvent::PresenceComplete => {
                self.presence.on_complete(index);
                None
            }
            event @ (NodeEvent::Joined { .. } | NodeEvent::HubDown | NodeEvent::Refused(_)) => {
                Some(event)
            }
            event => self.merge_parts(index, event),
        }
    }

    /// Reports the verdicts on the parts of one message as one.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what has no number of a link is passed on as it is"
    )]
    fn merge_parts(&mut self, index: u8, event: NodeEvent) -> Option<NodeEvent> {
        match event {
            NodeEvent::MailStored(seq) => self.merge_mail(index, seq, MailPart::Stored),
            NodeEvent::MailRefused(seq, reason) => {
                self.merge_mail(index, seq, MailPart::Refused(reason))
            }
            NodeEvent::MailPartRefused {
                seq,
                stored,
                refused_count,
                refused,
                reason,
            } => {
                let part = MailPart::Partial {
                    stored,
                    refused_count,
                    refused,
                    reason,
                };
                self.merge_mail(index, seq, part)
            }
            NodeEvent::GroupDone { request, result } => {
                self.merge_group(index, request, GroupPart::Done(result))
            }
            NodeEvent::GroupMembers {
                request,
                players,
                more,
            } => self.merge_group(index, request, GroupPart::Members { players, more }),
            NodeEvent::GroupSent { request, outcome } => {
                self.merge_group(index, request, GroupPart::Sent(outcome))
            }
            event => Some(event),
        }
    }

    fn merge_mail(&mut self, index: u8, seq: SenderSeq, part: MailPart) -> Option<NodeEvent> {
        if !self.mails.has_part((index, seq.0)) {
            let seq = SenderSeq(self.links.to_unique(index, seq.0));
            return Some(part.into_event(seq));
        }
        let (number, sum) = self.mails.end((index, seq.0), |sum| sum.add(index, part))?;
        Some(sum.into_event(SenderSeq(self.links.sum_number(number))))
    }

    fn merge_group(
        &mut self,
        index: u8,
        request: GroupRequest,
        part: GroupPart,
    ) -> Option<NodeEvent> {
        if !self.groups.has_part((index, request.0)) {
            let request = GroupRequest(self.links.to_unique(index, request.0));
            return Some(part.into_event(request));
        }
        let (number, sum) = self.groups.end((index, request.0), |sum| sum.add(part))?;
        Some(sum.into_event(GroupRequest(self.links.sum_number(number))))
    }

    /// Applies what the last record of a link, or a call to it, has changed about topics.
    pub(super) fn settle_topics(&mut self, index: u8) {
        let Some(shard) = &mut self.links.get(index).shard else {
            return;
        };
        let (ended, casts) = shard.take();
        for topic in ended {
            self.end_topic(index, topic);
        }
        for (from, topic, body) in casts {
            for link in self.links.iter_mut() {
                link.deliver_cast(Some(from), topic, &body);
            }
        }
    }
}
