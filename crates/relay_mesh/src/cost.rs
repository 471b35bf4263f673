//! Costs of links and routes: delay, jitter and loss in one number, without floating point.

/// Cost of a round trip in units of 0.1 ms, saturating.
///
/// It fits a signed 16-bit lane (baseline x86-64 has the signed minimum), so the largest value is
/// 32,767, which means unroutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u16);

impl Cost {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// Unroutable; sums saturate at it.
    pub const UNROUTABLE: Self = Self(0x7fff);

    /// Creates a cost of `units` of 0.1 ms; from 32,767 on it is unroutable.
    #[must_use]
    pub const fn from_units(units: u16) -> Self {
        if units < Self::UNROUTABLE.0 {
            Self(units)
        } else {
            Self::UNROUTABLE
        }
    }

    /// Creates a cost of `millis` ms; from 3,277 ms on it is unroutable.
    #[must_use]
    pub const fn from_millis(millis: u16) -> Self {
        Self::from_units(millis.saturating_mul(10))
    }

    /// Creates a cost of `micros` µs, rounded up; from 3,276,601 µs on it is unroutable.
    #[must_use]
    pub fn from_micros(micros: u64) -> Self {
        Self::from_wide(micros.div_ceil(100))
    }

    /// Returns units of 0.1 ms.
    #[must_use]
    pub const fn units(self) -> u16 {
        self.0
    }

    /// Returns the value as a lane of a cost matrix; never negative.
    #[must_use]
    pub const fn lane(self) -> i16 {
        self.0.cast_signed()
    }

    /// Creates a cost from a lane of a cost matrix; negative lanes are zero.
    #[must_use]
    pub const fn from_lane(lane: i16) -> Self {
        if lane < 0 {
            Self::ZERO
        } else {
            Self(lane.cast_unsigned())
        }
    }

    /// Returns whether it is below [`UNROUTABLE`](Self::UNROUTABLE).
    #[must_use]
    pub const fn is_routable(self) -> bool {
        self.0 < Self::UNROUTABLE.0
    }

    /// Returns the sum, which saturates at [`UNROUTABLE`](Self::UNROUTABLE).
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::from_units(self.0.saturating_add(other.0))
    }

    /// Returns the difference, at least zero; an unroutable cost stays unroutable.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        if self.is_routable() {
            Self(self.0.saturating_sub(other.0))
        } else {
            self
        }
    }

    /// Returns `percent` % of the cost, rounded down.
    #[must_use]
    pub fn percent(self, percent: u16) -> Self {
        let hundredths = u64::from(self.0).saturating_mul(u64::from(percent));
        Self::from_wide(hundredths / 100)
    }

    fn from_wide(units: u64) -> Self {
        u16::try_from(units).map_or(Self::UNROUTABLE, Self::from_units)
    }
}

/// Share of lost probes, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loss(u32);

impl Loss {
    /// No loss.
    pub const NONE: Self = Self(0);
    /// Total loss.
    pub const ALL: Self = Self(1_000_000);

    /// Creates a share of `ppm` millionths, at most all.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Self {
        if ppm < Self::ALL.0 {
            Self(ppm)
        } else {
            Self::ALL
        }
    }

    /// Returns millionths.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// Returns `lost` of `sent`, rounded down; zero if none was sent.
    #[must_use]
    pub fn of(lost: u32, sent: u32) -> Self {
        let millionths = u64::from(lost.min(sent)).saturating_mul(1_000_000);
        let ppm = millionths.checked_div(u64::from(sent)).unwrap_or(0);
        u32::try_from(ppm).map_or(Self::ALL, Self::from_ppm)
    }

    /// Returns the lower bound of Wilson's score interval for `lost` of `sent`, one standard
    /// deviation wide (z = 1): the loss that so many probes prove. Zero if none was sent.
    ///
    /// E. B. Wilson, JASA 22 (1927): (2k + z² − z √(z² + 4k(n − k)/n)) / 2(n + z²).
    #[must_use]
    pub fn lower_bound(lost: u32, sent: u32) -> Self {
        /// One, squared, in the scale of the square root: millionths twice.
        const ONE: u128 = 1_000_000_000_000;
        let (lost, sent) = (u128::from(lost.min(sent)), u128::from(sent));
        let spread = lost.saturating_mul(sent.saturating_sub(lost));
        let spread = spread
            .saturating_mul(4 * ONE)
            .checked_div(sent)
            .unwrap_or(0);
        let root = spread.saturating_add(ONE).isqrt();
        let twice_and_one = lost.saturating_mul(2).saturating_add(1);
        let numerator = twice_and_one.saturating_mul(1_000_000).saturating_sub(root);
        let denominator = sent.saturating_add(1).saturating_mul(2);
        let ppm = numerator.checked_div(denominator).unwrap_or(0);
        u32::try_from(ppm).map_or(Self::ALL, Self::from_ppm)
    }

    /// Returns the loss of a link that lost `lost` of `sent` probes: the lower bound without the
    /// first lost probe, which is attributed to chance.
    ///
    /// A link that loses 2 of 1,000 in each direction has a lost probe among the newest 100 for a
    /// third of the time. By its share of loss that probe would cost 20 ms and move packets.
    #[must_use]
    pub fn from_probes(lost: u32, sent: u32) -> Self {
        Self::lower_bound(lost.saturating_sub(1), sent)
    }
}

/// A [`Loss`] in one byte of a link record.
///
/// | code | share |
/// |---|---|
/// | 0 to 200 | code × 0.1 % |
/// | 201 to 254 | 20 % + (code − 200) × 1 % |
/// | 255 | all |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LossCode(pub u8);

impl LossCode {
    /// Total loss.
    pub const ALL: Self = Self(255);

    /// Returns the share of this code.
    #[must_use]
    pub fn loss(self) -> Loss {
        let code = u32::from(self.0);
        Loss::from_ppm(match self.0 {
            0..=200 => code.saturating_mul(1_000),
            201..=254 => code
                .saturating_sub(200)
                .saturating_mul(10_000)
                .saturating_add(200_000),
            255 => Loss::ALL.0,
        })
    }
}

impl From<Loss> for LossCode {
    /// Rounds up, so that no report is too low.
    fn from(loss: Loss) -> Self {
        let code = match loss.0 {
            ppm @ ..=200_000 => ppm.div_ceil(1_000),
            ppm @ ..=740_000 => ppm
                .saturating_sub(200_000)
                .div_ceil(10_000)
                .saturating_add(200),
            _ => 255,
        };
        Self(u8::try_from(code).unwrap_or(u8::MAX))
    }
}

/// Weights of delay, loss and relays in a game's costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostModel {
    loss: Box<[Cost]>,
    relay: Cost,
}

impl CostModel {
    /// Creates a model in which loss costs `lambda_ms` × (−ln(1 − loss)) and each relay `relay`.
    ///
    /// With 2,000 ms, 1 % of loss costs as much as 20 ms.
    #[must_use]
    pub fn new(lambda_ms: u16, relay: Cost) -> Self {
        let loss = (0..=u8::MAX)
            .map(|code| loss_cost(lambda_ms, LossCode(code).loss()))
            .collect();
        Self { loss, relay }
    }

    /// Returns the cost of a loss.
    #[must_use]
    pub fn loss(&self, loss: LossCode) -> Cost {
        let loss = self.loss.get(usize::from(loss.0));
        loss.copied().unwrap_or(Cost::UNROUTABLE)
    }

    /// Returns the cost of a relay.
    #[must_use]
    pub const fn relay(&self) -> Cost {
        self.relay
    }
}

impl Default for CostModel {
    /// 2,000 ms per e-fold of loss, 1 ms per relay.
    fn default() -> Self {
        Self::new(2_000, Cost::from_millis(1))
    }
}

/// Returns `lambda_ms` × (−ln(1 − `loss`)), rounded to the nearest unit.
///
/// Exact to 0.1 ms for every share and every `lambda_ms`.
#[must_use]
pub fn loss_cost(lambda_ms: u16, loss: Loss) -> Cost {
    let kept = Loss::ALL.0.saturating_sub(loss.0);
    if kept == 0 {
        return Cost::UNROUTABLE;
    }
    let halvings = log2(Loss::ALL.0).saturating_sub(log2(kept));
    // Units of 0.1 ms, with 64 binary places.
    let units = u128::from(lambda_ms)
        .saturating_mul(10)
        .saturating_mul(u128::from(halvings))
        .saturating_mul(LN_2);
    let rounded = units.saturating_add(1 << 63) >> 64;
    u64::try_from(rounded).map_or(Cost::UNROUTABLE, Cost::from_wide)
}

/// ln 2 with 32 binary places.
const LN_2: u128 = 2_977_044_472;

/// Returns log2 of `value` with 32 binary places; 0 for 0.
///
/// Each squaring of the mantissa gives one place (Knuth, TAOCP 1, section 1.2.2).
fn log2(value: u32) -> u64 {
    let Some(whole) = value.checked_ilog2() else {
        return 0;
    };
    let mut mantissa = u128::from(value) << 62_u32.saturating_sub(whole);
    let mut places = u64::from(whole);
    for _ in 0..32 {
        mantissa = mantissa.saturating_mul(mantissa) >> 62;
        places <<= 1;
        if mantissa >> 63 != 0 {
            mantissa >>= 1;
            places |= 1;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sums_stay_unroutable() {
        assert_eq!(Cost::from_units(40_000), Cost::UNROUTABLE);
        assert_eq!(Cost::UNROUTABLE.plus(Cost::ZERO), Cost::UNROUTABLE);
        assert_eq!(
            Cost::from_units(20_000).plus(Cost::from_units(20_000)),
            Cost::UNROUTABLE
        );
        assert_eq!(Cost::from_micros(101), Cost::from_units(2));
        assert_eq!(Cost::from_micros(u64::MAX), Cost::UNROUTABLE);
        assert_eq!(Cost::from_lane(-5), Cost::ZERO);
        assert_eq!(Cost::from_lane(Cost::UNROUTABLE.lane()), Cost::UNROUTABLE);
        assert_eq!(Cost::from_millis(100).percent(5), Cost::from_millis(5));
        assert_eq!(
            Cost::UNROUTABLE.less(Cost::from_millis(1)),
            Cost::UNROUTABLE
        );
        assert_eq!(Cost::from_units(3).less(Cost::from_units(5)), Cost::ZERO);
    }

    #[test]
    fn pgx5_every_loss_has_the_cost_of_the_formula() {
        for lambda in [1, 500, 2_000, u16::MAX] {
            for ppm in (0..1_000_000).step_by(37).chain(999_990..1_000_000) {
                let exact = -10.0 * f64::from(lambda) * (1.0 - f64::from(ppm) / 1e6).ln();
                let ours = f64::from(loss_cost(lambda, Loss::from_ppm(ppm)).units());
                let error = (ours - exact.min(32_767.0)).abs();
                assert!(error <= 1.0, "{lambda} {ppm}: {ours} for {exact}");
            }
        }
        assert_eq!(loss_cost(2_000, Loss::ALL), Cost::UNROUTABLE);
        assert_eq!(loss_cost(2_000, Loss::from_ppm(10_000)).units(), 201);
    }

    #[test]
    fn wilsons_bound_matches_the_formula_and_grows_with_losses() {
        for sent in 1..=200_u32 {
            let mut last = 0;
            for lost in 0..=sent {
                let (k, n) = (f64::from(lost), f64::from(sent));
                let exact =
                    (2.0 * k + 1.0 - (1.0 + 4.0 * k * (n - k) / n).sqrt()) / (2.0 * (n + 1.0));
                let ours = Loss::lower_bound(lost, sent).ppm();
                assert!(
                    (f64::from(ours) - exact * 1e6).abs() < 2.0,
                    "{lost} of {sent}"
                );
                assert!(ours >= last && f64::from(ours) <= k / n * 1e6);
                last = ours;
            }
        }
        assert_eq!(Loss::of(1, 3), Loss::from_ppm(333_333));
        assert_eq!([Loss::of(0, 0), Loss::of(4, 3)], [Loss::NONE, Loss::ALL]);
        assert_eq!(Loss::lower_bound(0, 0), Loss::NONE);
        assert_eq!(Loss::lower_bound(9, 3), Loss::lower_bound(3, 3));
    }

    #[test]
    fn pgx5_a_probe_lost_by_chance_costs_nothing_and_lasting_loss_does() {
        let model = CostModel::default();
        let price = |lost, sent| model.loss(Loss::from_probes(lost, sent).into());
        for sent in [1, 10, 100] {
            assert_eq!(price(0, sent), Cost::ZERO);
            assert_eq!(price(1, sent), Cost::ZERO);
        }
        assert!(price(2, 100) <= Cost::from_millis(8));
        assert!(price(2, 10) > price(2, 100), "few probes, many lost");
        assert!(price(10, 100) > price(2, 10), "as many, and proved");
        assert!(price(10, 100) >= Cost::from_millis(130));
        assert!(price(3, 20) >= Cost::from_millis(100));
    }

    #[test]
    fn pgx5_loss_weighs_like_delay() {
        let model = CostModel::default();
        let lossy = Cost::from_millis(50).plus(model.loss(Loss::from_ppm(10_000).into()));
        assert!(lossy < Cost::from_millis(71), "1 % weighs 20 ms, not 21");
        assert!(Cost::from_millis(69) < lossy);
        assert_eq!(model.loss(LossCode(0)), Cost::ZERO);
        assert_eq!(model.loss(LossCode::ALL), Cost::UNROUTABLE);
    }

    proptest! {
        #[test]
        fn a_code_never_flatters_and_is_near(ppm in 0_u32..=1_000_000) {
            let code = LossCode::from(Loss::from_ppm(ppm));
            let reported = code.loss().ppm();
            prop_assert!(reported >= ppm);
            let step = if ppm <= 200_000 { 1_000 } else { 10_000 };
            prop_assert!(ppm > 740_000 || reported - ppm < step);
            prop_assert_eq!(LossCode::from(code.loss()), code);
        }
    }
}
