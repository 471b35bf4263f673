//! Real cities and how far they are apart.

/// A city of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct City {
    name: &'static str,
    /// Degrees north of the equator, in hundredths.
    north_centi: i32,
    /// Degrees east of Greenwich, in hundredths.
    east_centi: i32,
}

impl City {
    /// Returns its name in ASCII.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its latitude and longitude in hundredths of a degree, north and east positive.
    #[must_use]
    pub const fn position_centi(&self) -> (i32, i32) {
        (self.north_centi, self.east_centi)
    }
}

/// Returns the great-circle distance of two cities by their places in [`CITIES`], in kilometres;
/// `None` where there is no such city.
pub(super) fn kilometres(one: usize, other: usize) -> Option<u64> {
    if one == other && one < CITIES.len() {
        return Some(0);
    }
    let row = KILOMETRES.get(one.max(other))?;
    row.get(one.min(other)).copied().map(u64::from)
}

const fn city(name: &'static str, north_centi: i32, east_centi: i32) -> City {
    City {
        name,
        north_centi,
        east_centi,
    }
}

/// Large cities with large data centres, by name.
pub(super) const CITIES: [City; 25] = [
    city("Amsterdam", 5_237, 490),
    city("Bogota", 471, -7_407),
    city("Chicago", 4_188, -8_763),
    city("Dallas", 3_278, -9_680),
    city("Dubai", 2_520, 5_527),
    city("Frankfurt", 5_011, 868),
    city("Hong Kong", 2_232, 11_417),
    city("Johannesburg", -2_620, 2_805),
    city("Lagos", 652, 338),
    city("London", 5_151, -13),
    city("Los Angeles", 3_405, -11_824),
    city("Madrid", 4_042, -370),
    city("Moscow", 5_576, 3_762),
    city("Mumbai", 1_908, 7_288),
    city("New York", 4_071, -7_401),
    city("Paris", 4_886, 235),
    city("Santiago", -3_345, -7_067),
    city("Sao Paulo", -2_355, -4_663),
    city("Seattle", 4_761, -12_233),
    city("Seoul", 3_757, 12_698),
    city("Singapore", 135, 10_382),
    city("Stockholm", 5_933, 1_807),
    city("Sydney", -3_387, 15_121),
    city("Tokyo", 3_568, 13_969),
    city("Warsaw", 5_223, 2_101),
];

/// Distances of each city to those above it, in the order of [`CITIES`]; rounded to whole
/// kilometres on a sphere of radius 6,371 km, so that no platform's trigonometry matters.
#[rustfmt::skip]
const KILOMETRES: [&[u16]; 25] = [
    &[],
    &[8_845],
    &[6_608, 4_347],
    &[7_901, 3_912, 1_295],
    &[5_160, 13_617, 11_638, 12_922],
    &[364, 9_089, 6_964, 8_256, 4_836],
    &[9_277, 16_879, 12_532, 13_062, 5_955, 9_158],
    &[9_022, 11_447, 13_983, 14_686, 6_419, 8_698, 10_719],
    &[5_100, 8_565, 9_607, 10_557, 5_883, 4_872, 11_836, 4_508],
    &[358, 8_491, 6_353, 7_641, 5_474, 638, 9_623, 9_070, 5_013],
    &[8_939, 5_597, 2_804, 1_991, 13_391, 9_303, 11_650, 16_674, 12_409, 8_755],
    &[1_481, 8_012, 6_725, 7_956, 5_656, 1_445, 10_537, 8_102, 3_835, 1_263, 9_363],
    &[2_147, 10_898, 7_999, 9_264, 3_687, 2_022, 7_140, 9_159, 6_251, 2_501, 9_769, 3_440],
    &[6_852, 15_534, 12_946, 14_145, 1_935, 6_564, 4_297, 6_983, 7_621, 7_192, 13_991, 7_532, 5_028],
    &[5_863, 4_003, 1_144, 2_205, 11_009, 6_203, 12_956, 12_840, 8_473, 5_570, 3_935, 5_769, 7_511, 12_538],
    &[430, 8_622, 6_650, 7_934, 5_247, 478, 9_626, 8_729, 4_709, 343, 9_085, 1_053, 2_486, 7_009, 5_837],
    &[12_013, 4_258, 8_554, 7_856, 14_753, 12_110, 18_690, 9_178, 8_950, 11_673, 8_998, 10_703, 14_131, 16_071, 8_253, 11_649],
    &[9_805, 4_328, 8_408, 8_217, 12_226, 9_829, 18_046, 7_429, 6_374, 9_497, 9_906, 8_385, 11_806, 13_774, 7_686, 9_402, 2_586],
    &[7_825, 6_613, 2_789, 2_703, 11_915, 8_180, 10_414, 16_504, 11_996, 7_699, 1_546, 8_510, 8_370, 12_445, 3_865, 8_041, 10_378, 10_918],
    &[8_556, 14_834, 10_509, 10_973, 6_784, 8_550, 2_093, 12_488, 12_399, 8_857, 9_586, 9_995, 6_605, 5_595, 11_052, 8_965, 18_356, 18_342, 8_322],
    &[10_492, 19_302, 15_072, 15_646, 5_837, 10_258, 2_586, 8_659, 11_143, 10_848, 14_122, 11_381, 8_421, 3_904, 15_333, 10_729, 16_400, 15_987, 12_978, 4_673],
    &[1_125, 9_678, 6_880, 8_164, 4_758, 1_187, 8_223, 9_555, 6_004, 1_433, 8_880, 2_593, 1_227, 6_229, 6_320, 1_543, 13_087, 10_927, 7_591, 7_431, 9_637],
    &[16_643, 14_334, 14_876, 13_818, 12_049, 16_483, 7_376, 11_041, 15_523, 16_994, 12_074, 17_684, 14_496, 10_157, 15_988, 16_961, 11_346, 13_357, 12_471, 8_330, 6_306, 15_596],
    &[9_289, 14_310, 10_139, 10_398, 7_934, 9_333, 2_879, 13_539, 13_472, 9_559, 8_817, 10_763, 7_479, 6_723, 10_850, 9_713, 17_235, 18_535, 7_697, 1_153, 5_314, 8_170, 7_826],
    &[1_093, 9_938, 7_511, 8_804, 4_157, 890, 8_273, 8_748, 5_332, 1_448, 9_637, 2_289, 1_151, 5_781, 6_855, 1_366, 12_986, 10_660, 8_381, 7_740, 9_400, 810, 15_595, 8_579],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_agrees_with_the_positions() {
        for (one, city) in CITIES.iter().enumerate() {
            for (other, other_city) in CITIES.iter().enumerate() {
                let charted = kilometres(one, other).unwrap();
                assert_eq!(kilometres(other, one), Some(charted));
                let computed = haversine(city, other_city);
                let off = (f64::from(u32::try_from(charted).unwrap()) - computed).abs();
                assert!(
                    off < 2.0,
                    "{} to {}: {computed}",
                    city.name,
                    other_city.name
                );
            }
        }
        assert_eq!(kilometres(0, CITIES.len()), None);
        assert_eq!(kilometres(CITIES.len(), CITIES.len()), None);
    }

    #[test]
    fn cities_stand_in_the_order_of_their_names() {
        assert!(CITIES.is_sorted_by_key(|city| city.name));
    }

    fn haversine(one: &City, other: &City) -> f64 {
        let radians = |centi: i32| (f64::from(centi) / 100.0).to_radians();
        let (north, other_north) = (radians(one.north_centi), radians(other.north_centi));
        let east = radians(other.east_centi) - radians(one.east_centi);
        let half = |angle: f64| (angle / 2.0).sin().powi(2);
        let root = half(other_north - north) + north.cos() * other_north.cos() * half(east);
        2.0 * 6_371.0 * root.sqrt().asin()
    }
}
