//! Debug output without bodies: they are people's mail, and keys that travel by call.

use core::fmt;

use crate::hub::Hub;
use crate::log::SegmentFile;
use crate::log::format::StoredMail;
use crate::node::{Node, NodeEvent, SendError};
use crate::record::{CallError, Delivery, MailSubmission, Request, ToHub, ToNode};
use crate::store::{Mail, NewMail, Store};

/// Prints how many bytes there are, and none of them.
pub(crate) struct Hidden<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

fn hidden<B: AsRef<[u8]>>(result: &Result<B, CallError>) -> Result<Hidden<'_>, CallError> {
    match result {
        Ok(body) => Ok(Hidden(body.as_ref())),
        Err(error) => Err(*error),
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("request", &self.request)
            .field("from", &self.from)
            .field("instance", &self.instance)
            .field("timeout_ms", &self.timeout_ms)
            .field("to", &self.to)
            .field("body", &Hidden(self.body))
            .finish()
    }
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("player", &self.player)
            .field("claim", &self.claim)
            .field("seq", &self.seq)
            .field("from", &self.from)
            .field("epoch", &self.epoch)
            .field("sender_seq", &self.sender_seq)
            .field("body", &Hidden(self.body))
            .finish()
    }
}

impl fmt::Debug for MailSubmission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailSubmission")
            .field("seq", &self.seq)
            .field("settled", &self.settled)
            .field("ttl_s", &self.ttl_s)
            .field("to", &self.to)
            .field("body", &Hidden(self.body))
            .finish()
    }
}

impl fmt::Debug for StoredMail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredMail")
            .field("seq", &self.seq)
            .field("player", &self.player)
            .field("expires", &self.expires)
            .field("node", &self.node)
            .field("epoch", &self.epoch)
            .field("sender_seq", &self.sender_seq)
            .field("body", &Hidden(self.body))
            .finish()
    }
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail")
            .field("seq", &self.seq)
            .field("node", &self.node)
            .field("epoch", &self.epoch)
            .field("sender_seq", &self.sender_seq)
            .field("body", &Hidden(&self.body))
            .finish()
    }
}

impl fmt::Debug for NewMail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMail")
            .field("to", &self.to)
            .field("node", &self.node)
            .field("epoch", &self.epoch)
            .field("seq", &self.seq)
            .field("settled", &self.settled)
            .field("expires", &self.expires)
            .field("body", &Hidden(&self.body))
            .finish()
    }
}

impl fmt::Debug for ToHub<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(join) => f.debug_tuple("Join").field(join).finish(),
            Self::Heartbeat => f.write_str("Heartbeat"),
            Self::Leave => f.write_str("Leave"),
            Self::Call {
                call,
                timeout_ms,
                to,
                body,
            } => f
                .debug_struct("Call")
                .field("call", call)
                .field("timeout_ms", timeout_ms)
                .field("to", to)
                .field("body", &Hidden(body))
                .finish(),
            Self::Reply { request, result } => f
                .debug_struct("Reply")
                .field("request", request)
                .field("result", &hidden(result))
                .finish(),
            Self::Mail(mail) => f.debug_tuple("Mail").field(mail).finish(),
            Self::MailAck { player, upto } => f
                .debug_struct("MailAck")
                .field("player", player)
                .field("upto", upto)
                .finish(),
            Self::Claim {
                player,
                claim,
                lease,
                delivered,
                acknowledged,
                meta,
            } => f
                .debug_struct("Claim")
                .field("player", player)
                .field("claim", claim)
                .field("lease", lease)
                .field("delivered", delivered)
                .field("acknowledged", acknowledged)
                .field("meta", &Hidden(meta))
                .finish(),
            Self::Release { player, claim } => f
                .debug_struct("Release")
                .field("player", player)
                .field("claim", claim)
                .finish(),
            Self::Broadcast { topic, body } => f
                .debug_struct("Broadcast")
                .field("topic", topic)
                .field("body", &Hidden(body))
                .finish(),
            Self::Counts { batch, entries } => f
                .debug_struct("Counts")
                .field("batch", batch)
                .field("entries", entries)
                .finish(),
        }
    }
}

impl fmt::Debug for ToNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined {
                epoch,
                boot,
                log,
                mail_mark,
                count_mark,
            } => f
                .debug_struct("Joined")
                .field("epoch", epoch)
                .field("boot", boot)
                .field("log", log)
                .field("mail_mark", mail_mark)
                .field("count_mark", count_mark)
                .finish(),
            Self::Heartbeat => f.write_str("Heartbeat"),
            Self::Down(reason) => f.debug_tuple("Down").field(reason).finish(),
            Self::Request(request) => f.debug_tuple("Request").field(request).finish(),
            Self::Reply { call, result } => f
                .debug_struct("Reply")
                .field("call", call)
                .field("result", &hidden(result))
                .finish(),
            Self::MailSettled {
                first,
                last,
                verdict,
                retry_ms,
            } => f
                .debug_struct("MailSettled")
                .field("first", first)
                .field("last", last)
                .field("verdict", verdict)
                .field("retry_ms", retry_ms)
                .finish(),
            Self::Deliver(delivery) => f.debug_tuple("Deliver").field(delivery).finish(),
            Self::Granted {
                player,
                claim,
                lease,
            } => {
                write!(f, "Granted({player:?}, {claim:?}, {lease:?})")
            }
            Self::Revoked {
                player,
                claim,
                reason,
            } => {
                write!(f, "Revoked({player:?}, {claim:?}, {reason:?})")
            }
            Self::Broadcast { from, topic, body } => f
                .debug_struct("Broadcast")
                .field("from", from)
                .field("topic", topic)
                .field("body", &Hidden(body))
                .finish(),
            Self::Counted { upto } => f.debug_struct("Counted").field("upto", upto).finish(),
            Self::PresenceReset => f.write_str("PresenceReset"),
            Self::PresenceNode { node, seen } => f
                .debug_struct("PresenceNode")
                .field("node", node)
                .field("seen", seen)
                .finish(),
            Self::PresencePlayer { player, holder } => f
                .debug_struct("PresencePlayer")
                .field("player", player)
                .field("holder", &holder.map(|(node, meta)| (node, Hidden(meta))))
                .finish(),
            Self::PresenceComplete => f.write_str("PresenceComplete"),
        }
    }
}

impl fmt::Debug for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { epoch, log } => f
                .debug_struct("Joined")
                .field("epoch", epoch)
                .field("log", log)
                .finish(),
            Self::HubDown => f.write_str("HubDown"),
            Self::Refused(reason) => f.debug_tuple("Refused").field(reason).finish(),
            Self::Reply { call, result } => f
                .debug_struct("Reply")
                .field("call", call)
                .field("result", &hidden(result))
                .finish(),
            Self::Request {
                ticket,
                from,
                instance,
                to,
                body,
            } => f
                .debug_struct("Request")
                .field("ticket", ticket)
                .field("from", from)
                .field("instance", instance)
                .field("to", to)
                .field("body", &Hidden(body))
                .finish(),
            Self::MailStored(seq) => f.debug_tuple("MailStored").field(seq).finish(),
            Self::MailRefused(seq, reason) => f
                .debug_tuple("MailRefused")
                .field(seq)
                .field(reason)
                .finish(),
            Self::Mail {
                claim,
                seq,
                from,
                body,
            } => f
                .debug_struct("Mail")
                .field("claim", claim)
                .field("seq", seq)
                .field("from", from)
                .field("body", &Hidden(body))
                .finish(),
            Self::Claimed(claim) => f.debug_tuple("Claimed").field(claim).finish(),
            Self::ClaimLost(claim, reason) => f
                .debug_tuple("ClaimLost")
                .field(claim)
                .field(reason)
                .finish(),
            Self::Broadcast { from, topic, body } => f
                .debug_struct("Broadcast")
                .field("from", from)
                .field("topic", topic)
                .field("body", &Hidden(body))
                .finish(),
            Self::PresenceReset => f.write_str("PresenceReset"),
            Self::NodePresence(node, seen) => f
                .debug_tuple("NodePresence")
                .field(node)
                .field(seen)
                .finish(),
            Self::PlayerPresence(player, holder) => f
                .debug_tuple("PlayerPresence")
                .field(player)
                .field(&holder.as_ref().map(|(node, meta)| (node, Hidden(meta))))
                .finish(),
            Self::PresenceComplete => f.write_str("PresenceComplete"),
        }
    }
}

impl fmt::Debug for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, body) = match self {
            Self::HubDown(body) => ("HubDown", body),
            Self::Full(body) => ("Full", body),
            Self::TooLong(body) => ("TooLong", body),
        };
        f.debug_tuple(name).field(&Hidden(body)).finish()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("nodes", &self.nodes().collect::<Vec<_>>())
            .field("player_count", &self.player_count())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("is_joined", &self.is_joined())
            .field("mails_waiting", &self.mails_waiting())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<F: SegmentFile> fmt::Debug for Store<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("mail_count", &self.mail_count())
            .field("recovery", &self.recovery())
            .field("stats", &self.stats())
            .field("is_dead", &self.is_dead())
            .finish_non_exhaustive()
    }
}
