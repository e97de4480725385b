#include "guardian.h"
