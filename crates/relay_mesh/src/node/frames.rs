//! Datagrams of the data plane, and the frames in them.

use core::net::SocketAddr;

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::shard::ShardId;
use crate::trunk::{self, Frames};

impl<P: Provider> Node<P> {
    /// Takes a datagram of the data plane: a frame, or a trunk of them, each handled as if it had come
    /// alone.
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
        // One that came undivided: no flow ends at another shard than the first, so it goes on.
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
