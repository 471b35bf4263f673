//! The finaliser of `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014): spreads numbers that may be alike.
//!
//! It is no cryptography: who knows the output knows the input.

/// Mixes the bits of a number: no two have the same outcome, and 0 has 0.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The generator's first output where `seed` is its state: as [`mix`], and 0 has another outcome too.
pub(crate) const fn first(seed: u64) -> u64 {
    mix(seed.wrapping_add(GAMMA))
}

/// What the generator adds to its state each time: 2^64 by the golden ratio, odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outputs_are_those_of_the_reference_generator() {
        // Of the seed 1,234,567, as Rosetta Code lists them ("Pseudo-random numbers/Splitmix64").
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
