//! The last encoded bundles, which most datagrams of a tick share.

use core::ops::Range;

use crate::chain::Chain;
use crate::repair::{Closed, RepairLimits, Wanted, newest};
use crate::tick::Tick;

/// Bundles of consecutive ticks, concatenated as in datagrams.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// The last query, the end of the ticks it was for, and its result.
    found: (Option<Wanted>, Tick, Range<u32>),
    /// Ticks of the bundles in `bytes`.
    ticks: Range<u32>,
    bytes: Vec<u8>,
}

impl Body {
    /// Creates one that never grows past `len_max` bytes.
    pub(crate) fn with_capacity(len_max: usize) -> Self {
        Self {
            found: (None, Tick(0), 0..0),
            ticks: 0..0,
            bytes: Vec::with_capacity(len_max),
        }
    }

    /// The newest wanted bundles, as many as fit one datagram; cached for equal queries.
    pub(crate) fn newest(
        &mut self,
        closed: &Closed<'_>,
        wanted: Wanted,
        limits: &RepairLimits,
    ) -> Range<u32> {
        let (asked, end, found) = &self.found;
        if *asked == Some(wanted) && *end == closed.end {
            return found.clone();
        }
        let found = newest(closed, wanted, limits);
        self.found = (Some(wanted), closed.end, found.clone());
        found
    }

    /// Returns the bundles of `ticks`, which `chain` holds.
    pub(crate) fn lay_out(&mut self, chain: &Chain, ticks: &Range<u32>) -> &[u8] {
        if self.ticks != *ticks {
            self.bytes.clear();
            for tick in ticks.clone() {
                self.bytes
                    .extend_from_slice(chain.get(Tick(tick)).unwrap_or_default());
            }
            self.ticks = ticks.clone();
        }
        &self.bytes
    }

    /// Heap bytes in use.
    pub(crate) const fn memory_len(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Shape;
    use crate::input::Width;

    #[test]
    fn what_is_laid_out_is_what_the_chain_holds() {
        let shape = Shape {
            seats: 1,
            width: Width::bits::<16>(),
        };
        let limits = RepairLimits {
            ticks: 4,
            period_nanos: 1,
            report_ticks: 1,
            len_max: 5,
            len_beside: 0,
            len_small: 3,
            burst: 0,
            gain: 0,
        };
        let mut chain = Chain::new(shape);
        let mut body = Body::with_capacity(limits.len_max);
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
                assert_eq!(body.lay_out(&chain, &ticks), expected);
            }
        }
        assert_eq!(body.memory_len(), limits.len_max);
    }
}
