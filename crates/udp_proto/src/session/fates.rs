//! What became of packets, passed on to those who wrote their frames.

use wire::Instant;

use super::mtu::MtuProbing;
use super::{Confirm, Content, News, Sending};
use crate::inbox::Inbox;
use crate::outbox::Outbox;

/// Who hears what became of a packet's contents.
pub(super) struct Fates<'a> {
    pub(super) now: Instant,
    pub(super) outbox: &'a mut Outbox,
    pub(super) inbox: &'a mut Inbox,
    pub(super) confirm: &'a mut Option<(Box<Confirm>, Sending)>,
    pub(super) mtu: &'a mut MtuProbing,
    pub(super) news: &'a mut News,
}

impl Fates<'_> {
    /// Sees to it that what a lost packet carried is sent again, where it must be.
    pub(super) fn on_lost(&mut self, content: Content) {
        match content {
            Content::Message(message) => {
                self.outbox.on_lost(self.now, message);
            }
            Content::Confirm => {
                if let Some((_, sending)) = self.confirm {
                    *sending = Sending::Due;
                }
            }
            Content::Window(credit) => self.inbox.on_window_lost(credit),
            Content::MtuProbe(mtu) => {
                if let Some(outcome) = self.mtu.on_lost(self.now, mtu) {
                    self.news.mtu_checked = Some(outcome);
                }
            }
        }
    }

    /// Lets go of what has arrived.
    pub(super) fn on_acknowledged(&mut self, content: Content) {
        match content {
            Content::Message(message) => self.outbox.on_acked(message),
            Content::Window(credit) => self.inbox.on_window_acked(credit),
            Content::Confirm => *self.confirm = None,
            Content::MtuProbe(mtu) => {
                if let Some(outcome) = self.mtu.on_acknowledged(self.now, mtu) {
                    self.news.mtu_checked = Some(outcome);
                }
            }
        }
    }
}
