//! Datagrams of the data plane, and the frames in them.

use core::net::SocketAddr;

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::shard::ShardId;
use crate::trunk::{self, Frames};

impl<P: Provider> Node<P> {
    /// Handles a datagram of the data plane: one frame, or a trunk. Each frame of a trunk is
    /// handled as if it had arrived alone.
    pub(super) fn on_frames(&mut self, now: Instant, source: SocketAddr, datagram: &mut [u8]) {
        if datagram.first() != Some(&trunk::KIND) {
            self.on_frame(now, source, datagram);
            return;
        }
        let Ok(frames) = Frames::new(datagram) else {
            self.plane.stats.count_bad_trunk();
            return;
        };
        for frame in frames {
            match frame {
                Ok(frame) => self.on_frame(now, source, frame),
                Err(_) => self.plane.stats.count_bad_trunk(),
            }
        }
    }

    fn on_frame(&mut self, now: Instant, source: SocketAddr, frame: &mut [u8]) {
        let shard = ShardId::of_datagram(frame);
        let provider = self.endpoint.provider();
        // The frame belongs to another shard. Flows end only at the first shard, so it is always
        // forwarded.
        let shared = self.shards.lock(shard).map(|mut plane| {
            plane.handle_frame(provider, now, (source, frame));
        });
        if shared.is_some() {
            self.shards.touched.note(shard);
            return;
        }
        if let Some(arrived) = self.plane.handle_frame(provider, now, (source, frame)) {
            self.on_arrived(now, arrived);
        }
    }
}
