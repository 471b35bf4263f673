//! netsim's link models on real sockets.

use netsim::Link;
use wire::Instant;

use super::{Delivery, LinkModel};

impl LinkModel for Link {
    fn send(&mut self, now: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>) {
        for arrival in Self::send(self, now, datagram.len()) {
            let mut bytes = datagram.to_vec();
            let len = arrival.edit(&mut bytes).len();
            bytes.truncate(len);
            deliveries.push(Delivery {
                at: arrival.at,
                bytes,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use netsim::{Chance, LinkConfig};
    use wire::Seed;

    use super::*;

    #[test]
    fn a_link_delays_copies_and_damages_what_is_sent() {
        let config = LinkConfig::default()
            .with_delay(Duration::from_millis(7))
            .with_duplicate(Chance::percent(100))
            .with_corrupt(Chance::percent(100));
        let mut link = Link::new(config, Seed::from_number(1).generator(0));
        let mut deliveries = Vec::new();
        LinkModel::send(&mut link, Instant::ZERO, b"datagram", &mut deliveries);
        assert_eq!(deliveries.len(), 2);
        for delivery in deliveries {
            assert_eq!(delivery.at, Instant::from_millis(7));
            assert_eq!(delivery.bytes.len(), 8);
            assert_ne!(delivery.bytes, b"datagram");
        }
    }
}
