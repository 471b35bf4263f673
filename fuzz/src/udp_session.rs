//! A session with a hostile, authenticated peer.

use std::collections::BTreeSet;

use core::time::Duration;

use crypto::{Initial, OpeningKey, Provider, Role, SealingKey, Suite};
use netsim::provider::{SimAead, SimProvider};
use udp_proto::VERSION_1;
use udp_proto::frame::{Frame, Frames};
use udp_proto::handshake::accept::{AcceptClear, CLEAR_LEN};
use udp_proto::handshake::hello::{Hello, Hello0, set_cookie};
use udp_proto::handshake::params::Params;
use udp_proto::handshake::reply::Retry;
use udp_proto::packet::{Cid, Header, PLAINTEXT_LEN_MIN, PacketNumber, TAG_LEN};
use udp_proto::{ChannelId, ChannelTable, Config, Endpoint, Event, SendError, SessionId};
use wire::{Arrival, Instant, Reader, Seed, Truncated};

use crate::udp_endpoint::{APP, CLIENT, server};

/// Maximum memory of a server session with default channels and a window of 256 KiB.
const MEMORY_MAX: usize = 768 << 10;

/// Establishes a session manually and then seals arbitrary bytes as its packets, mixed with
/// replays, damage, gaps, waits and messages of the server. The server does not panic and stays
/// within its memory bound. Its packets are well formed. Its events are in order and end exactly
/// once.
pub fn plaintexts(data: &[u8]) {
    Rogue::connect().run(data);
}

/// A client which consists only of keys, and its server.
struct Rogue {
    server: Endpoint<SimProvider>,
    sealing: SealingKey<SimAead>,
    opening: OpeningKey<SimAead>,
    server_cid: Cid,
    /// Packets sent, for replay; at most 16.
    sent: Vec<Vec<u8>>,
    session: Option<SessionId>,
    /// Sessions which have reported `Closed`.
    over: BTreeSet<SessionId>,
    /// Lower bound of the server's next packet number.
    opened: PacketNumber,
    /// Number of messages read by the server's application.
    read: u32,
    now: Instant,
}

impl Rogue {
    /// HELLO, RETRY, HELLO, ACCEPT, CONFIRM.
    fn connect() -> Self {
        let mut config = Config::default();
        config.receive_window = 256 << 10;
        let (mut server, _) = server(config.clone());
        let mut provider = SimProvider::new(Seed::from_number(3));
        let (mut ephemeral, client_ephemeral) = provider.ephemeral(Role::Dialler).expect("seeded");
        let mut hello = Vec::new();
        Hello {
            version: VERSION_1,
            version_max: VERSION_1,
            app_id: APP.0,
            hello_id: 1,
            suites: 1,
            client_cid: Cid::EMPTY,
            client_ephemeral,
            cookie: None,
            psk_mac: [0; 16],
            token: &[],
        }
        .encode(&mut hello);
        let retry = Retry::decode(&exchange(&mut server, &mut hello.clone())).expect("a RETRY");
        set_cookie(&mut hello, &retry.cookie);
        let accept = exchange(&mut server, &mut hello);

        let clear = AcceptClear::decode(&accept).expect("an ACCEPT");
        let shared = provider
            .agree(&mut ephemeral, &clear.server_ephemeral)
            .expect("a point");
        let hello0 = Hello0::new(&hello).expect("1,200 bytes");
        let [a, b, c] = hello0.parts();
        let th1 = provider.sha256(&[a, b, c, &accept]);
        assert!(accept.len() > CLEAR_LEN);
        let (ours, theirs, _) = Initial::new(&provider, None)
            .agree(&provider, &shared)
            .traffic(&provider, &th1)
            .split(Role::Dialler);
        let mut rogue = Self {
            server,
            sealing: ours.into_sealing_key(&provider, Suite::Aes128Gcm),
            opening: theirs.opening_key(&provider, Suite::Aes128Gcm),
            server_cid: clear.server_cid,
            sent: Vec::new(),
            session: None,
            over: BTreeSet::new(),
            opened: PacketNumber::ZERO,
            read: 0,
            now: Instant::ZERO,
        };
        rogue.confirm(&config, &provider);
        rogue.drain();
        assert!(rogue.session.is_some(), "the way in no longer works");
        rogue
    }

    fn run(&mut self, script: &[u8]) {
        let mut reader = Reader::new(script);
        while let Ok(op) = reader.u8() {
            if self.step(op, &mut reader).is_err() {
                break;
            }
            self.drain();
        }
    }

    fn confirm(&mut self, config: &Config, provider: &SimProvider) {
        let mut table = Vec::new();
        config.channels.encode(&mut table);
        let digest = provider.sha256(&[&table]);
        let mut plaintext = Vec::new();
        Frame::Confirm {
            params: &Params::of(config, [0; 7]).encode(),
            channel_digest: digest.first_chunk().expect("32 bytes"),
        }
        .encode(&mut plaintext);
        self.send(&plaintext);
    }

    fn step(&mut self, op: u8, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        let argument = op >> 3;
        match op & 7 {
            0 => self.wait(Duration::from_millis(u64::from(argument) * 20 + 1)),
            1 => {
                // A packet number which is never sent counts as a loss.
                self.sealing.skip().expect("few are used");
            }
            2 => self.replay(argument),
            3 => self.speak(argument),
            _ => {
                let len = usize::from(reader.u8()?);
                let mut plaintext = reader.bytes(len.min(reader.len()))?.to_vec();
                if argument & 1 != 0 {
                    plaintext.resize(plaintext.len() + 1_120, 7);
                }
                self.send(&plaintext);
            }
        }
        Ok(())
    }

    fn wait(&mut self, span: Duration) {
        self.now += span;
        if self.server.poll_timeout().is_some_and(|at| at <= self.now) {
            self.server.handle_timeout(self.now);
        }
    }

    /// Seals a plaintext, pads it as the protocol requires, and delivers it.
    fn send(&mut self, plaintext: &[u8]) {
        let number = PacketNumber::new(self.sealing.next_number()).expect("few are used");
        let form = number.form_after(PacketNumber::ZERO).expect("few are used");
        let mut packet = Vec::new();
        Header {
            key_phase: udp_proto::packet::KeyPhase::Even,
            destination: self.server_cid,
            number: number.truncate(form),
        }
        .encode(&mut packet);
        let header_len = packet.len();
        packet.extend_from_slice(plaintext);
        packet.resize(packet.len().max(header_len + PLAINTEXT_LEN_MIN), 0);
        let (clear, body) = packet.split_at_mut(header_len);
        let mut tag = [0; TAG_LEN];
        self.sealing.seal(clear, body, &mut tag).expect("few");
        packet.extend_from_slice(&tag);
        if self.sent.len() < 16 {
            self.sent.push(packet.clone());
        }
        self.arrive(&mut packet);
    }

    fn arrive(&mut self, packet: &mut [u8]) {
        self.server
            .handle_datagram(self.now, Arrival::from(CLIENT), packet);
    }

    /// Delivers a packet again, or a copy with a flipped bit. Neither has an effect.
    fn replay(&mut self, argument: u8) {
        let at = usize::from(argument >> 1) % self.sent.len().max(1);
        let Some(mut packet) = self.sent.get(at).cloned() else {
            return;
        };
        if argument & 1 != 0
            && let Some(last) = packet.last_mut()
        {
            *last ^= 1;
        }
        let before = self.server.stats().packets;
        self.arrive(&mut packet);
        assert_eq!(self.server.stats().packets, before, "a replay was taken");
    }

    /// Makes the server send on both channels.
    fn speak(&mut self, size: u8) {
        let Some(session) = self.session else { return };
        let message = vec![size; usize::from(size) * 150];
        for channel in [0, 1] {
            let result = self
                .server
                .send(self.now, session, ChannelId(channel), &message);
            // The queue may be full, because the peer need not acknowledge.
            let refused = [Err(SendError::Closed), Err(SendError::Full)];
            assert!(result.is_ok() || refused.contains(&result));
        }
    }

    /// Opens and decodes the server's packets, polls its events, and checks its memory.
    fn drain(&mut self) {
        let table = ChannelTable::default();
        let mut packet = Vec::new();
        while self.server.poll_transmit(self.now, &mut packet).is_some() {
            let header = Header::decode(&packet, 0).expect("a packet");
            let number = self.opened.widen(header.number);
            let (clear, sealed) = packet.split_at_mut(header.encoded_len());
            let (body, tag) = sealed.split_at_mut(sealed.len() - TAG_LEN);
            let tag = (&*tag).try_into().expect("16 bytes");
            self.opening
                .open(number.get(), clear, body, tag)
                .expect("sealed by the server");
            for frame in Frames::new(body, &table) {
                assert!(frame.is_ok(), "the server's frames are well formed");
            }
            self.opened = number.next().expect("few are used");
            packet.clear();
        }
        self.listen();
        let memory = self.server.memory();
        assert!(memory <= MEMORY_MAX, "{memory} bytes are held");
    }

    fn listen(&mut self) {
        let mut message = Vec::new();
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Connected { session, .. } => self.session = Some(session),
                Event::Readable { session } => {
                    assert!(!self.over.contains(&session), "news after the end");
                    while self
                        .server
                        .receive(self.now, session, &mut message)
                        .is_some()
                    {
                        self.read += 1;
                        message.clear();
                    }
                }
                Event::Closed { session, .. } => {
                    assert!(self.over.insert(session), "closed twice");
                }
                Event::ConnectFailed { .. }
                | Event::MtuChecked { .. }
                | Event::Settled { .. }
                | _ => {}
            }
        }
    }
}

/// Delivers a HELLO to the server and returns the reply.
fn exchange(server: &mut Endpoint<SimProvider>, hello: &mut [u8]) -> Vec<u8> {
    server.handle_datagram(Instant::ZERO, Arrival::from(CLIENT), hello);
    let mut answer = Vec::new();
    while server.poll_transmit(Instant::ZERO, &mut answer).is_some() {}
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reaches_channels_and_the_end() {
        let script = include_bytes!("../corpus/udp_session/seed_talk");
        let mut rogue = Rogue::connect();
        rogue.run(script);
        assert_eq!(rogue.read, 2, "one in two fragments, one unreliable");
        assert!(rogue.opened > PacketNumber::ZERO, "the server spoke");
        assert_eq!(rogue.over.len(), 1, "CLOSE was heard");
    }
}
