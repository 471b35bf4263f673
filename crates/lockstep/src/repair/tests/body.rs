use super::super::*;
use crate::bundle::Shape;
use crate::input::Width;

#[test]
fn the_encoded_body_equals_the_chain() {
    let shape = Shape {
        seats: 1,
        width: Width::bits::<16>(),
    };
    let limits = RepairLimits {
        ticks: 4,
        period_nanos: 1,
        report_ticks: 1,
        len_max: 5,
        reserved_len: 0,
        len_small: 3,
        burst: 0,
        gain: 0,
    };
    let mut chain = Chain::new(shape);
    let mut body = EncodedTicks::with_capacity(limits.len_max);
    for end in 1..100_u32 {
        let len = usize::try_from(end % 3).unwrap() + 1;
        chain.put(Tick(end - 1), &[u8::try_from(end).unwrap(); 3][..len]);
        let closed = Closed {
            chain: &chain,
            end: Tick(end),
            next_at: None,
        };
        for (from, spare) in [(4, 4), (4, 30), (0, 0), (1, 9), (1, 9)] {
            let wanted = Wanted {
                from: Tick(end.saturating_sub(from)),
                spare: Tick(end.saturating_sub(spare)),
            };
            let ticks = body.newest(&closed, wanted, &limits);
            assert_eq!(ticks, newest(&closed, wanted, &limits));
            let expected: Vec<u8> = ticks
                .clone()
                .flat_map(|tick| chain.get(Tick(tick)).unwrap().to_vec())
                .collect();
            assert_eq!(body.encode(&chain, &ticks), expected);
        }
    }
    assert_eq!(body.memory_len(), limits.len_max);
}
