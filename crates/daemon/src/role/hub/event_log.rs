//! Log lines of a hub's events.

use hub::record::DownReason;
use hub::{ClaimPolicy, FullReason, HubEvent};
use wire::{Instant, NodeId, UnixTime};

use crate::log_limit::{LineBudget, LogLimiter};

/// Logs events, and limits the lines that nodes can cause.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    unlisted: LogLimiter<NodeId>,
    refused: LogLimiter<(Option<NodeId>, DownReason)>,
    taken: LogLimiter<NodeId>,
    joined: LineBudget,
    left: LineBudget,
    full: LogLimiter<()>,
    over_share: LogLimiter<NodeId>,
    room: LogLimiter<()>,
}

impl EventLog {
    pub(super) fn event(&mut self, now: Instant, event: &HubEvent) {
        match *event {
            HubEvent::NodeUp { node, role, .. } => {
                if let Some(suppressed) = self.joined.admit(now) {
                    tracing::info!(%node, %role, suppressed, "joined");
                }
            }
            HubEvent::NodeDown { node, .. } => {
                if let Some(suppressed) = self.left.admit(now) {
                    tracing::info!(%node, suppressed, "left");
                }
            }
            HubEvent::Refused { node, reason } => self.refused(now, node, reason),
            HubEvent::PlayerTaken { player, from, by } => {
                if let Some(suppressed) = self.taken.admit(now, by) {
                    let player = player.0;
                    tracing::info!(player, %from, %by, suppressed, "a node took a player over");
                }
            }
            HubEvent::ClockRejected { read, believed } => clock_rejected(read, believed),
            HubEvent::ClockAhead { read, newest } => clock_ahead(read, newest),
            HubEvent::StoreFull { reason, refused } => self.full(now, reason, refused),
            HubEvent::StoreHasRoom { refused, after } => {
                if let Some(suppressed) = self.room.admit(now, ()) {
                    let after = after.as_secs_f32();
                    tracing::info!(refused, after, suppressed, "the store has room again");
                }
            }
            HubEvent::SenderOverShare {
                node,
                role,
                refused,
            } => {
                if let Some(suppressed) = self.over_share.admit(now, node) {
                    tracing::warn!(
                        %node,
                        %role,
                        refused,
                        suppressed,
                        "a node fills its share of the store: its mail waits, other mail is stored"
                    );
                }
            }
            HubEvent::MailDropped { count } => {
                tracing::warn!(count, "full mailboxes dropped mail");
            }
            HubEvent::MailCorrupt { mails } => {
                tracing::error!(
                    mails,
                    "the disk has lost mail that was acknowledged to its sender"
                );
            }
            HubEvent::StoreFailed => tracing::error!("the disk has failed"),
            HubEvent::StatsFailed => {
                tracing::error!("the disk of the statistics has failed; mail and calls continue");
            }
            HubEvent::KvDone { .. } | _ => {}
        }
    }

    /// A node that the join file does not list tries to connect.
    pub(super) fn unlisted(&mut self, now: Instant, claimed: NodeId) {
        if let Some(suppressed) = self.unlisted.admit(now, claimed) {
            tracing::warn!(
                node = %claimed,
                suppressed,
                "rejected a node that the join file does not list"
            );
        }
    }

    fn refused(&mut self, now: Instant, node: Option<NodeId>, reason: DownReason) {
        if reason == DownReason::Draining {
            return;
        }
        if let Some(suppressed) = self.refused.admit(now, (node, reason)) {
            let node = node.map(tracing::field::display);
            tracing::warn!(node, %reason, suppressed, "refused");
        }
    }

    fn full(&mut self, now: Instant, reason: FullReason, refused: u64) {
        if let Some(suppressed) = self.full.admit(now, ()) {
            tracing::error!(
                %reason,
                refused,
                suppressed,
                "the store is full: no mail is taken, and senders keep theirs"
            );
        }
    }
}

fn clock_rejected(read: UnixTime, believed: Option<UnixTime>) {
    let read = read.as_millis();
    let believed = believed.map(UnixTime::as_millis);
    tracing::warn!(
        read,
        believed,
        "the wall clock is implausible and is ignored; check it: mail expires by it if it stays so \
         for hours"
    );
}

fn clock_ahead(read: UnixTime, newest: UnixTime) {
    let (read, newest) = (read.as_millis(), newest.as_millis());
    tracing::warn!(
        read,
        newest,
        "the wall clock is far ahead of the log; mail expires by it after an hour of running, or \
         once it is set"
    );
}

/// Logs which claims are granted, if any node can claim any player.
pub(super) fn log_policy(claims: ClaimPolicy) {
    if claims == ClaimPolicy::Plain {
        tracing::info!(
            "any node that has joined can claim any player and read its mail; --claims granted asks \
             for a grant"
        );
    }
}
