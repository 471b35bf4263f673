//! Echo requests, RFC 792 and RFC 4443, as a ping socket takes and gives them.
//!
//! icmp(7): a datagram socket of this protocol, which groups of `net.ipv4.ping_group_range` may open. The
//! system puts in identifier and checksum, and lets through what is sent to that identifier, by whomever:
//! so each request has a word of its own, which its answer repeats.

use std::net::IpAddr;

use socket2::Protocol;

/// The protocol of a host's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(super) const fn protocol(self) -> Protocol {
        match self {
            Self::V4 => Protocol::ICMPV4,
            Self::V6 => Protocol::ICMPV6,
        }
    }

    /// Types of request and reply.
    const fn types(self) -> [u8; 2] {
        match self {
            Self::V4 => [8, 0],
            Self::V6 => [128, 129],
        }
    }
}

/// What nobody can know who has not seen the request.
pub(super) type Word = [u8; 16];

/// | 1 type | 1 code | 2 checksum | 2 identifier | 2 sequence | 16 word | data |
pub(super) fn request(family: Family, word: &Word) -> Vec<u8> {
    let [kind, _] = family.types();
    let head = [kind, 0, 0, 0, 0, 0, 0, 1];
    [&head[..], word, DATA].concat()
}

/// Whether it answers that request: some systems put an IP header before it.
pub(super) fn is_answer(family: Family, word: &Word, datagram: &[u8]) -> bool {
    let [_, kind] = family.types();
    let is_it = |bytes: &[u8]| {
        bytes.first() == Some(&kind)
            && bytes.get(6..8) == Some(&[0, 1])
            && bytes.get(8..24) == Some(word)
            && bytes.get(24..) == Some(DATA)
    };
    let behind_header = match datagram.first() {
        Some(first) if first >> 4 == 4 => datagram.get(usize::from(first & 15) * 4..),
        _ => None,
    };
    is_it(datagram) || behind_header.is_some_and(is_it)
}

/// With the word, as many bytes as ping(8) sends.
const DATA: &[u8] = b"tickwire measures a game server here....";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg5_an_echo_is_the_answer_to_its_request_alone() {
        for (family, kind) in [(Family::V4, 0), (Family::V6, 129)] {
            let (word, other) = ([7; 16], [8; 16]);
            let is_answer = |family, datagram: &[u8]| is_answer(family, &word, datagram);
            let asked = request(family, &word);
            assert_eq!(asked.len(), 64);
            assert!(!is_answer(family, &asked), "a request is none");
            let mut answer = asked;
            answer[0] = kind;
            answer[4..6].copy_from_slice(&[7, 7]);
            assert!(
                is_answer(family, &answer),
                "the system chose the identifier"
            );
            let headed = [&[0x45; 20][..], &answer].concat();
            assert!(is_answer(family, &headed));
            answer[8..24].copy_from_slice(&other);
            assert!(!is_answer(family, &answer), "of another request");
            answer[8..24].copy_from_slice(&word);
            answer.pop();
            assert!(!is_answer(family, &answer), "cut");
        }
        for datagram in [&[][..], &[0x4F], &[0x45; 30]] {
            assert!(!is_answer(Family::V4, &[0; 16], datagram));
        }
    }
}
