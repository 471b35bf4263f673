//! The finalizer of `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014), which spreads similar numbers.
//!
//! It is not cryptographic: the input can be computed from the output.

/// Mixes the bits of a number: a bijection that maps 0 to 0.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The generator's first output with `seed` as its state: like [`mix`], but 0 is not mapped to 0.
pub(crate) const fn first(seed: u64) -> u64 {
    mix(seed.wrapping_add(GAMMA))
}

/// Increment of the generator's state: 2^64 divided by the golden ratio, odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outputs_are_those_of_the_reference_generator() {
        // For seed 1,234,567, as listed by Rosetta Code ("Pseudo-random numbers/Splitmix64").
        let seed = 1_234_567_u64;
        let outputs = (0..5).map(|step| first(seed.wrapping_add(GAMMA.wrapping_mul(step))));
        assert!(outputs.eq([
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ]));
        assert_eq!(mix(0), 0);
    }
}
