//! The outbound PROXY header, which a game's server receives before a player's stream.

use super::open_record::OpenRecord;
use crate::proxy_header::{
    Ends, Subject, Tlv, TlvKind, Transport, Version, WriteError, write_block, write_line,
};
use crate::server_header::{HeaderExtras, ServerHeader};

/// An exit's data for a stream's header, besides its open record.
#[derive(Clone, Copy, Debug)]
pub struct OutboundHeader<'a> {
    /// The form of the header.
    pub header: ServerHeader,
    /// The stream's unique id: 8 bytes of the exit's run, 8 of the stream within it.
    pub session: [u8; 16],
    /// The nodes on the route, 8 bytes each, the entry first.
    pub nodes: &'a [u8],
}

impl OutboundHeader<'_> {
    /// Appends the header of a stream that began with `open`.
    ///
    /// Its destination is the address that the player connected to; the specification, section 2.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the header is invalid; nothing is appended then. No decoded record is
    /// known to cause it.
    pub fn write(&self, open: &OpenRecord, out: &mut Vec<u8>) -> Result<(), WriteError> {
        let ends = Ends {
            transport: Transport::Stream,
            source: open.player,
            destination: open.listen,
        };
        let extras = self.header.extras;
        let session = Tlv {
            kind: TlvKind::SESSION_ID,
            value: &self.session,
        };
        let nodes = Tlv {
            kind: TlvKind::NODES,
            value: self.nodes,
        };
        let tlvs: &[Tlv<'_>] = match (
            extras.contains(HeaderExtras::SESSION_ID),
            extras.contains(HeaderExtras::NODES),
        ) {
            (true, true) => &[session, nodes],
            (true, false) => &[session],
            (false, true) => &[nodes],
            (false, false) => &[],
        };
        match self.header.version {
            Version::One => write_line(&ends, out),
            Version::Two => write_block(&Subject::Flow(ends), tlvs, extras.checksum(), out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_header::{Found, LEN_USUAL, read};

    fn outbound_header(version: Version, extras: HeaderExtras) -> OutboundHeader<'static> {
        let header = ServerHeader {
            version,
            extras,
            ..ServerHeader::default()
        };
        OutboundHeader {
            header,
            session: [7; 16],
            nodes: &[9; 24],
        }
    }

    fn open(player: &str, listen: &str) -> OpenRecord {
        OpenRecord {
            game: "web".into(),
            player: player.parse().unwrap(),
            listen: listen.parse().unwrap(),
        }
    }

    #[test]
    fn pg10_a_server_is_told_the_players_address_of_either_family() {
        let ends = [
            ("203.0.113.9:4000", "192.0.2.1:443"),
            ("[2001:db8::9]:4000", "[2001:db8::1]:443"),
        ];
        for (player, listen) in ends {
            for version in [Version::One, Version::Two] {
                let open = open(player, listen);
                let mut out = b"x".to_vec();
                let outbound_header = outbound_header(version, HeaderExtras::NONE);
                outbound_header.write(&open, &mut out).unwrap();
                let Ok(Found::Header(header)) = read(&out[1..], LEN_USUAL) else {
                    panic!("{out:?}");
                };
                assert_eq!(header.len, out.len() - 1);
                let told = header.ends().unwrap();
                assert_eq!((told.source, told.destination), (open.player, open.listen));
                assert_eq!(
                    (told.transport, header.version),
                    (Transport::Stream, version)
                );
            }
        }
    }

    #[test]
    fn pgx10_a_stream_has_the_extras_that_are_asked_for() {
        let all = [
            HeaderExtras::CHECKSUM,
            HeaderExtras::SESSION_ID,
            HeaderExtras::NODES,
        ];
        for chosen in 0..8_u8 {
            let is_in = |bit: usize| chosen & 1 << bit != 0;
            let extras = (0..3).filter(|&bit| is_in(bit));
            let extras = extras.fold(HeaderExtras::NONE, |set, bit| set | all[bit]);
            let mut out = Vec::new();
            let outbound_header = outbound_header(Version::Two, extras);
            outbound_header
                .write(&open("203.0.113.9:4000", "192.0.2.1:443"), &mut out)
                .unwrap();
            let Ok(Found::Header(header)) = read(&out, LEN_USUAL) else {
                panic!("{out:?}");
            };
            assert_eq!(header.tlv(TlvKind::CRC32C).is_some(), is_in(0));
            let session = is_in(1).then_some(&[7; 16][..]);
            assert_eq!(header.tlv(TlvKind::SESSION_ID), session);
            assert_eq!(header.tlv(TlvKind::NODES), is_in(2).then_some(&[9; 24][..]));
        }
    }
}
