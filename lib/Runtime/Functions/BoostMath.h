//===- BoostMath.h - special functions of Boost -----------------*- C++ -*-===//
//
// Boost.Math is header-only, and its error policies can be to do nothing. What we call is in its namespace `detail`:
// the public functions add static initializers, which each compiled library would run when it is loaded, and their
// dispatch brings formatted messages and exceptions, whatever the policy.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_FUNCTIONS_BOOSTMATH_H
#define DISC_RUNTIME_FUNCTIONS_BOOSTMATH_H

#include <boost/math/policies/policy.hpp>

namespace disc::rt {

using Quiet =
    boost::math::policies::policy<boost::math::policies::domain_error<boost::math::policies::ignore_error>,
                                  boost::math::policies::pole_error<boost::math::policies::ignore_error>,
                                  boost::math::policies::overflow_error<boost::math::policies::ignore_error>,
                                  boost::math::policies::evaluation_error<boost::math::policies::ignore_error>,
                                  boost::math::policies::rounding_error<boost::math::policies::ignore_error>,
                                  boost::math::policies::promote_float<false>,
                                  boost::math::policies::promote_double<false>>;

// The significands that an approximation is made for. Their base class is the integral_constant that Boost's functions
// take, of Boost or of the standard library, depending on the version.
constexpr boost::math::policies::digits2<53> kDouble;
constexpr boost::math::policies::digits2<64> kExtended;

} // namespace disc::rt

#endif // DISC_RUNTIME_FUNCTIONS_BOOSTMATH_H
