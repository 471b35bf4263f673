//! Datagrams of the data plane, and the frames in them.

use core::net::SocketAddr;

use crypto::Provider;
use wire::Instant;

use super::Node;
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
            self.count_bad_trunk();
            return;
        };
        for frame in frames {
            match frame {
                Ok(frame) => self.on_frame(now, source, frame),
                Err(_) => self.count_bad_trunk(),
            }
        }
    }

    fn on_frame(&mut self, now: Instant, source: SocketAddr, frame: &mut [u8]) {
        let provider = self.endpoint.provider();
        if let Some(arrived) = self.plane.handle_frame(provider, now, (source, frame)) {
            self.on_arrived(now, arrived);
        }
    }

    const fn count_bad_trunk(&mut self) {
        let stats = &mut self.plane.stats;
        stats.bad_trunk = stats.bad_trunk.saturating_add(1);
    }
}
