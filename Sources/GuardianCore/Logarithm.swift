/// The binary logarithm of a positive finite number, to about 1e-13.
///
/// Made of additions, multiplications and divisions only, so that it is the same to the last bit in every build and on
/// every machine: which set is probed next hangs on it, and a search must go on alike after an upgrade.
func logarithm2(_ x: Double) -> Double {
  guard x > 0, x.isFinite else { return 0 }
  // x = 2^e · m with m in [√½, √2), and ln m = 2·atanh((m − 1)/(m + 1)).
  var exponent = Double(x.exponent), m = x.significand
  if m > 1.414_213_562_373_095 {
    m /= 2
    exponent += 1
  }
  let z = (m - 1) / (m + 1), square = z * z
  var sum = 0.0, divisor = 15.0
  // Horner's rule over z^(2k+1)/(2k+1), the smallest term first; |z| < 0.172, so that z^17/17 is below 1e-14.
  while divisor > 0 {
    sum = sum * square + 1 / divisor
    divisor -= 2
  }
  return exponent + 2.885_390_081_777_927 * z * sum
}

/// What is not known of something that happens with this probability, in bits: 1 at ½, 0 where it is certain.
func entropy(_ p: Double) -> Double {
  guard p > 0, p < 1 else { return 0 }
  return -(p * logarithm2(p) + (1 - p) * logarithm2(1 - p))
}
