use super::*;

#[test]
fn peer_numbers_with_equal_low_bits_have_distinct_seats() {
    let numbers = [7, 1_000, 39, u32::MAX, 71, 0].map(PeerId);
    let seats = || numbers.into_iter().zip([0_u16, 1, 2, 4, 5, 6]);
    let of = |seat| seats().find(|(_, its)| *its == seat).map(|(peer, _)| peer);
    let peer_index = PeerIndex::new((0..7).map(of));
    for (peer, seat) in seats() {
        assert_eq!(peer_index.seat_of(peer), Some(seat));
    }
    for peer in [8, 32, 103].map(PeerId) {
        assert_eq!(peer_index.seat_of(peer), None);
    }
}
