//! Multiple comparisons: of twenty tests at 5 %, one finds a difference that does not exist.

/// Holm's adjusted probabilities, in the order given. A comparison with an adjusted probability below 5 % is proven
/// even among many: the probability that any is wrong stays below 5 %.
pub(crate) fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&one, &other| probabilities[one].total_cmp(&probabilities[other]));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut least = 0.0f64;
    for (rank, &index) in order.iter().enumerate() {
        let left = (probabilities.len() - rank) as f64;
        least = least.max((left * probabilities[index]).min(1.0));
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_is_that_of_the_textbooks() {
        // The example of "Holm–Bonferroni method" in Wikipedia, which rejects the first and the last; the values come
        // from R 4.2, p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.4, 0.9]), [0.8, 0.9]);
        assert_eq!(holm(&[0.01]), [0.01]);
        assert!(holm(&[]).is_empty());
    }
}
