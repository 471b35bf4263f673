//! Messages over QUIC streams: one stream per direction, with a length prefix of four bytes per
//! message.

use quinn_proto::{Connection, Dir, StreamId};

/// The streams of one connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The outgoing stream, once it is open.
    outbound: Option<StreamId>,
    /// Length and message, to be written in one call.
    scratch: Vec<u8>,
    /// The received part of a length and its message.
    inbound: Vec<u8>,
}

/// Bytes of a message's length prefix.
const PREFIX: usize = 4;

impl Streams {
    /// Queues one message.
    pub(super) fn write(&mut self, connection: &mut Connection, message: &[u8]) {
        let id = *self.outbound.get_or_insert_with(|| {
            let opened = connection.streams().open(Dir::Uni);
            opened.expect("the first of a hundred")
        });
        let length = u32::try_from(message.len()).expect("short");
        self.scratch.clear();
        self.scratch.extend_from_slice(&length.to_be_bytes());
        self.scratch.extend_from_slice(message);
        let written = connection.send_stream(id).write(&self.scratch);
        assert_eq!(written, Ok(self.scratch.len()), "the windows have room");
    }

    /// Reads in order. Returns how many messages are complete.
    pub(super) fn read(&mut self, connection: &mut Connection, id: StreamId) -> u64 {
        let mut whole = 0;
        let mut stream = connection.recv_stream(id);
        let mut chunks = stream.read(true).expect("it was not read before");
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            let mut rest = &*chunk.bytes;
            while !rest.is_empty() {
                let (taken, after) = rest.split_at(self.missing().min(rest.len()));
                self.inbound.extend_from_slice(taken);
                rest = after;
                if self.inbound.len() > PREFIX && self.missing() == 0 {
                    core::hint::black_box(&self.inbound);
                    self.inbound.clear();
                    whole += 1;
                }
            }
        }
        // Window updates are sent with the next packets.
        let _ = chunks.finalize();
        whole
    }

    /// Returns how many bytes are missing of the length, or of the message.
    fn missing(&self) -> usize {
        match self.inbound.first_chunk() {
            None => PREFIX - self.inbound.len(),
            Some(length) => {
                let length = u32::from_be_bytes(*length) as usize;
                PREFIX + length - self.inbound.len()
            }
        }
    }
}
